//! Which schema each record has.

use crate::serdes::internal::Wire;

use super::{Approval, Claim, Command, Control, Intake, Intent, ResultRecord, Return, WorkRequest};

macro_rules! wire {
    ($($type:ty = $name:literal in $file:literal $(or $earlier:literal in $copy:literal)*;)*) => {
        $(impl Wire for $type {
            const SCHEMA: &'static str = $name;
            const AVSC: &'static str = include_str!(concat!("../../schemas/", $file));
            const EARLIER: &'static [(&'static str, &'static str)] =
                &[$(($earlier, include_str!(concat!("../../schemas/earlier/", $copy))),)*];
        })*
        /// All schemas: (`name/version`, text).
        pub const SCHEMAS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../schemas/", $file))),)*];
    };
}

wire! {
    WorkRequest = "work-request/1" in "work-request.avsc";
    Approval = "approval/1" in "approval.avsc";
    Intake = "intake/1" in "intake.avsc";
    Claim = "claim/1" in "claim.avsc";
    Command = "command/2" in "command.avsc" or "command/1" in "command-1.avsc";
    Control = "control/3" in "control.avsc" or "control/2" in "control-2.avsc" or "control/1" in "control-1.avsc";
    Intent = "intent/1" in "intent.avsc";
    Return = "return/1" in "return.avsc";
    ResultRecord = "result/2" in "result.avsc" or "result/1" in "result-1.avsc";
}

#[cfg(test)]
mod tests;
