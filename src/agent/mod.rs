//! The steps admit, plan, gate and authorize on the one operation record.
