//! Errors: what we were doing, to what, why, whose fault it is, whether trying again helps, and what to do next.

use std::fmt;

/// A stable code with a page of its own: `RB0103`. All codes stand in [`codes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RB{:04}", self.0)
    }
}

/// Whose fault an error is, and with it whether trying again helps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A file, flag or setting: fix it, then start again. Exit code 2.
    Configuration,
    /// A broker, registry or target that can't be reached now: trying again helps. Exit code 3.
    Unreachable,
    /// One record: dead letter or park, and go on.
    Data,
    /// Another member holds this slot. Exit code 5.
    SlotTaken,
    /// What was shown is no longer so. Exit code 4.
    Stale,
    /// A negative verdict of a check that ran. Exit code 1.
    Verdict,
    /// Ours. Exit code 70.
    Bug,
}

impl Fault {
    /// The process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Fault::Data | Fault::Verdict => 1,
            Fault::Configuration => 2,
            Fault::Unreachable => 3,
            Fault::Stale => 4,
            Fault::SlotTaken => 5,
            Fault::Bug => 70,
        }
    }
}

/// An error that people may see.
#[derive(Debug)]
pub struct Error {
    /// The stable code.
    pub code: Code,
    /// Whose fault.
    pub fault: Fault,
    /// What we were doing, to what: `committing orders-001`.
    pub doing: String,
    /// The next step for whoever reads it, where one is known.
    pub next: Option<String>,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error without cause or next step yet.
    pub fn new(code: Code, fault: Fault, doing: impl Into<String>) -> Self {
        Self { code, fault, doing: doing.into(), next: None, source: None }
    }
    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
    /// Adds the next step.
    #[must_use]
    pub fn next(mut self, step: impl Into<String>) -> Self {
        self.next = Some(step.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.doing)?;
        let mut cause = self.source.as_deref().map(|e| e as &dyn std::error::Error);
        while let Some(e) = cause {
            write!(f, "\n  because: {e}")?;
            cause = e.source();
        }
        match &self.next {
            Some(next) => write!(f, "\n  next: {next}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

/// Every code, in one list. Ranges: 0001 process, 01xx files, 02xx effects, 03xx Kafka, 04xx checks, 05xx serdes and registry,
/// 06xx state, 07xx operations, 08xx console. A page for each is in `src/docs/errors.md`.
pub mod codes {
    use super::Code;

    macro_rules! codes {
        ($($(#[$doc:meta])* $name:ident = $n:literal;)*) => {
            $($(#[$doc])* pub const $name: Code = Code($n);)*
            /// All of them, with their names.
            pub const ALL: &[(Code, &str)] = &[$((Code($n), stringify!($name)),)*];
        };
    }

    codes! {
        /// Something that must never happen did.
        BUG = 1;
        /// A flag or argument is wrong.
        USAGE = 2;
        /// A file can't be read.
        FILE_UNREADABLE = 101;
        /// A file is not valid YAML.
        YAML_SYNTAX = 102;
        /// A key that nobody knows.
        UNKNOWN_KEY = 103;
        /// A key that must be there is missing.
        MISSING_KEY = 104;
        /// A value of the wrong type or out of range.
        BAD_VALUE = 105;
        /// A name that refers to nothing.
        UNKNOWN_REFERENCE = 106;
        /// A name that is used twice.
        DUPLICATE_NAME = 107;
        /// A CEL expression that does not compile.
        BAD_EXPRESSION = 108;
        /// A secret or variable that is not set.
        MISSING_SECRET = 109;
        /// A client setting that the product owns.
        RESERVED_SETTING = 110;
        /// A stateful step without a name.
        MISSING_NAME = 111;
        /// A contract that cannot carry its own promise.
        CONTRACT_PROMISE = 120;
        /// A Cedar policy that does not parse.
        BAD_POLICY = 121;
        /// A template that names no parameter.
        BAD_TEMPLATE = 122;
        /// The readback stayed inconclusive.
        READBACK_INCONCLUSIVE = 231;
        /// The target shows another content under our key.
        EFFECT_CONFLICT = 232;
        /// Answer and readback disagree.
        CONTRADICTION = 233;
        /// The retry budget is used up.
        BUDGET_EXHAUSTED = 234;
        /// Nothing can prove what happened.
        UNPROVABLE = 235;
        /// Unknown for longer than allowed.
        UNKNOWN_TOO_LONG = 236;
        /// More than one effect seems to exist.
        DUPLICATE_SUSPECTED = 237;
        /// The target said no.
        TARGET_REFUSED = 238;
        /// The deadline passed before the first send.
        EXPIRED = 239;
        /// Policy, approval or target version said no.
        DENIED = 240;
        /// An effect's record is older than its life.
        STALE_INTENT = 241;
        /// The ledger record can't be read.
        LEDGER_UNREADABLE = 242;
        /// A record grew beyond its limit.
        LEDGER_TOO_LARGE = 243;
        /// The resource no longer stands at the version that the request was made for.
        PRECONDITION_FAILED = 244;
        /// A webhook that is not the target's own, or not of now.
        WEBHOOK_UNBELIEVED = 245;
        /// A webhook that is not as its contract says.
        WEBHOOK_UNREADABLE = 246;
        /// A broker can't be reached.
        BROKER_UNREACHABLE = 301;
        /// A topic is missing.
        TOPIC_MISSING = 302;
        /// A topic is not as it must be.
        TOPIC_MISMATCH = 303;
        /// Another member holds the slot.
        SLOT_TAKEN = 304;
        /// A transaction failed and was taken back.
        TRANSACTION_ABORTED = 305;
        /// Nobody can say whether a transaction was committed.
        COMMIT_UNCLEAR = 306;
        /// Offsets are blocked by an open transaction.
        OFFSETS_BLOCKED = 307;
        /// The broker refuses the client.
        NOT_AUTHORIZED = 308;
        /// No committed offset where one must be.
        OFFSET_MISSING = 309;
        /// The client failed for good.
        CLIENT_FAILED = 310;
        /// Stopping took longer than its bound.
        STOP_TIMEOUT = 311;
        /// A topic that state or positions rest on was deleted, emptied or cut short.
        TOPIC_LOST = 312;
        /// The broker takes no connection from us: a certificate is not trusted, not for this host, or no longer valid.
        TLS_REFUSED = 313;
        /// The broker does not take our login.
        LOGIN_REFUSED = 314;
        /// There is no token to sign in with.
        TOKEN_REFUSED = 315;
        /// The group protocol can't be spoken: a unit needs slots, or the brokers don't offer it.
        PROTOCOL_REFUSED = 316;
        /// The local stack can't start.
        STACK_UNAVAILABLE = 320;
        /// A weak but possible setting.
        WEAK_SETTING = 412;
        /// A deploy that would lose or reset state.
        SILENT_RESET = 413;
        /// A recorded run gave something else.
        UNEXPECTED_OUTPUT = 414;
        /// Ledger and the target's books disagree.
        BOOKS_DISAGREE = 415;
        /// A setting that a promise rests on was changed while a member ran.
        SETTING_CHANGED = 416;
        /// A record that can't be decoded.
        UNDECODABLE = 501;
        /// A schema that is not in the registry.
        SCHEMA_MISSING = 502;
        /// The registry can't be reached.
        REGISTRY_UNREACHABLE = 503;
        /// The registry refuses us.
        REGISTRY_REFUSED = 504;
        /// A schema that is not compatible.
        SCHEMA_INCOMPATIBLE = 505;
        /// Input beyond a size or depth limit.
        INPUT_TOO_LARGE = 506;
        /// A store can't be opened, read or written.
        STORE_FAILED = 601;
        /// The state directory is used by another process.
        STATE_DIR_LOCKED = 602;
        /// A changelog that can't be restored.
        RESTORE_FAILED = 603;
        /// A buffer of held-back changes is full.
        BUFFER_FULL = 604;
        /// A key's partition is in another process.
        STORE_ELSEWHERE = 605;
        /// The owner of slots does not hand them over.
        HANDOVER_REFUSED = 606;
        /// A request that breaks the envelope's rules.
        REQUEST_INVALID = 701;
        /// A known operation ID with other content.
        REQUEST_CONFLICT = 702;
        /// A request whose deadline has passed.
        REQUEST_EXPIRED = 703;
        /// A request beyond its budget.
        REQUEST_THROTTLED = 704;
        /// A request older than its record's life.
        REQUEST_STALE = 705;
        /// A plan that can't be used.
        PLAN_FAILED = 706;
        /// An input whose bytes are not those that were named.
        INPUT_MISMATCH = 707;
        /// A command for an operation that nobody knows.
        UNKNOWN_OPERATION = 708;
        /// A command made on a version that is no longer shown.
        STALE_VERSION = 709;
        /// A command that the status does not allow.
        COMMAND_REFUSED = 710;
        /// Cancelled before anything was sent.
        CANCELLED = 711;
        /// A request that means the same as an earlier one.
        SAME_MEANING = 712;
        /// A call of a plan whose predecessor did not happen.
        CALL_LEFT_OUT = 713;
        /// The calls of a plan ended differently.
        PLAN_PARTIAL = 714;
        /// What was done of a plan that could not be whole is undone.
        PLAN_UNDONE = 715;
        /// A dead letter that can't go back.
        REPLAY_REFUSED = 720;
        /// A dead letter that was replayed already.
        REPLAYED_ALREADY = 721;
        /// Nobody is signed in.
        SIGN_IN_REQUIRED = 801;
        /// A role, a person or an address that may not.
        NOT_PERMITTED = 802;
        /// Too many wrong tokens from one address.
        TOO_MANY_TRIES = 803;
        /// A form that was not shown to whoever sent it.
        FORM_REFUSED = 804;
        /// A console that others reach without signing in.
        CONSOLE_EXPOSED = 805;
        /// As many requests to the console are under way as it answers at once.
        CONSOLE_BUSY = 806;
        /// The issuer that signs people in does not answer, or is none.
        ISSUER_UNREACHABLE = 807;
        /// A sign-in, or a token, that the issuer's word does not carry.
        SIGN_IN_REFUSED = 808;
        /// An order to confirm that does not wait, or no longer.
        NOT_WAITING = 809;
        /// The console that orders go through does not answer, or is none.
        CONSOLE_UNREACHABLE = 810;
    }
}
