//! Named points of the thread loop at which a test can kill the process or make a call fail. Compiled in with the feature
//! `failpoints` only; `READBACK_FAIL=name:nth:kill` or `name:nth:<class>` (`abort-error` = `abort`) arms one from outside;
//! several are separated by commas.

/// Every point, in the order in which a transaction meets them. `before`/`after` stand around the client's call.
pub const NAMES: &[&str] = &[
    "restore.slice",
    "claim.before",
    "claim.after",
    "confirm.before",
    "confirm.after",
    "begin.before",
    "begin.after",
    "send.before",
    "send.after",
    "flush.before",
    "flush.after",
    "offsets.before",
    "offsets.after",
    "commit.before",
    "commit.after",
    "store.before-write",
    "committed.before",
    "committed.after",
    "abort.before",
    "abort.after",
    "revoke.before-commit",
    "revoke.before-release",
    "revoke.after-release",
    "effects.journalled",
    "effects.dispatched",
    "effects.before-fold",
    "effects.after-fold",
];

/// Marks a named point in a function whose error can be made from a `KafkaFault`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::runtime::failpoint::hit($name)?;
    };
}
pub(crate) use failpoint;

#[cfg(feature = "failpoints")]
pub use armed::{arm, disarm, hit};

#[cfg(feature = "failpoints")]
mod armed {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock};

    use super::NAMES;
    use crate::kafka::{Class, KResult, KafkaFault};

    /// What happens at the point. `None` = SIGKILL to this process.
    type Then = Option<Class>;

    struct Armed {
        name: String,
        left: u32,
        then: Then,
    }

    thread_local! { static HERE: RefCell<Option<Armed>> = const { RefCell::new(None) }; }
    static EVERYWHERE: Mutex<Option<Vec<Option<Armed>>>> = Mutex::new(None);

    /// Whether anything was ever armed: points stand in the path of every record, and nearly always nothing is.
    fn watched() -> &'static AtomicBool {
        static WATCHED: OnceLock<AtomicBool> = OnceLock::new();
        WATCHED.get_or_init(|| AtomicBool::new(std::env::var_os("READBACK_FAIL").is_some()))
    }

    /// Arms one point on this thread: at its `nth` pass (from 1) the call fails with `class`.
    pub fn arm(name: &str, nth: u32, class: Class) {
        assert!(NAMES.contains(&name), "no fail point {name}");
        watched().store(true, Ordering::Relaxed);
        HERE.set(Some(Armed { name: name.to_owned(), left: nth, then: Some(class) }));
    }

    /// Disarms this thread; answers whether the point had been met.
    pub fn disarm() -> bool {
        HERE.take().is_none()
    }

    /// Passes a point.
    pub fn hit(name: &'static str) -> KResult<()> {
        if !watched().load(Ordering::Relaxed) {
            return Ok(());
        }
        debug_assert!(NAMES.contains(&name), "{name} is not listed");
        if let Some(then) = HERE.with_borrow_mut(|armed| pass(armed, name)) {
            return act(name, then);
        }
        let mut shared = EVERYWHERE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let asked = || std::env::var("READBACK_FAIL").unwrap_or_default().split(',').map(parse).collect();
        let met = shared.get_or_insert_with(asked).iter_mut().find_map(|armed| pass(armed, name));
        met.map_or(Ok(()), |then| act(name, then))
    }

    fn pass(armed: &mut Option<Armed>, name: &str) -> Option<Then> {
        let point = armed.as_mut().filter(|a| a.name == name)?;
        point.left = point.left.saturating_sub(1);
        if point.left > 0 {
            return None;
        }
        armed.take().map(|a| a.then)
    }

    fn act(name: &'static str, then: Then) -> KResult<()> {
        if let Some(class) = then {
            return Err(KafkaFault::new(class, "fail point", name, "as asked"));
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        Ok(())
    }

    fn parse(text: &str) -> Option<Armed> {
        let mut parts = text.split(':');
        let (name, nth, then) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let classes = [Class::Retry, Class::Abort, Class::Fenced, Class::Rebuild, Class::OutcomeUnknown, Class::Config];
        let then = match then {
            "kill" => None,
            "abort-error" => Some(Class::Abort),
            label => Some(classes.into_iter().find(|c| c.label() == label)?),
        };
        Some(Armed { name: name.to_owned(), left: nth, then })
    }
}
