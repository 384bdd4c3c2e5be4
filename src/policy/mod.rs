//! Cedar policies, approvals, deadlines: may this be sent now? Pure.
