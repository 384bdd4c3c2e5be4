//! The effect stage: status and decide (pure); task, ledger, lanes, dispatcher, readback.
