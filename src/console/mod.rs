//! The console: what people on duty see of an application's operations, and order about them. Server-rendered pages and `/api/v1` over
//! one view of the two changelogs. Without sign-in it is read-only and bound to loopback; `src/docs/console.md` says how it is secured.

pub mod act;
pub mod api;
pub mod audit;
pub mod books;
pub mod draw;
mod facets;
mod flow;
pub mod follow;
mod fresh;
pub mod heard;
pub mod index;
pub mod lag;
pub mod letters;
pub mod live;
pub mod looks;
pub mod oidc;
pub mod openapi;
mod pages;
pub mod paging;
pub mod peers;
pub mod people;
mod problem;
mod proxies;
pub mod rates;
pub mod search;
pub mod second;
pub mod server;
pub mod session;
pub mod shown;
pub mod submit;
pub mod tail;
mod wire;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::admin::evidence::{Around, Stands};
use crate::admin::views::Seen;
use crate::config::{Net, OidcSection, ProcessConfig, SecretRef, Setting};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{ApplicationId, OperationKey, TopicName};
use crate::kafka::Cluster;
use crate::time::{SharedClock, WallTime};

use tokio::sync::Semaphore;

use audit::{Came, Entry};
use books::{Books, KafkaBooks, Subject};
use follow::Follow;
use heard::{Ears, Listener};
use index::Listed;
use looks::Looks;
use oidc::Oidc;
use oidc::claims::vouched;
use peers::Peers;
use people::{People, Person};
use rates::{Rates, Source};
use second::Waiters;
use session::{Claim, Sessions, Tries};
use submit::Doors;
use tail::{Kept, Tail};

/// How the console is served.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The file of tokens; without one, and without an issuer, nobody can sign in, and nothing can be ordered.
    pub tokens: Option<PathBuf>,
    /// The issuer that signs people in.
    pub oidc: Option<OidcSection>,
    /// How long a session lasts.
    pub session: Duration,
    /// What sessions are signed with, where several processes share them; else each has its own.
    pub session_secret: Option<SecretRef>,
    /// Where it listens: a session's cookie goes over TLS only, unless that is loopback.
    pub listen: String,
    /// Proxies whose word is believed of where a request came from.
    pub proxies: Vec<Net>,
    /// Where members' `/metrics` are; empty: nobody is asked.
    pub members: Vec<String>,
    /// When operations are read.
    pub follow: Follow,
}

impl Settings {
    /// As the configuration of a process says; operations are read all the time.
    pub fn of(config: &ProcessConfig, listen: &str) -> Self {
        let c = &config.console;
        Self {
            tokens: c.tokens.clone(),
            oidc: c.oidc.clone(),
            session: c.session.0,
            session_secret: c.session_secret.clone(),
            listen: listen.to_owned(),
            proxies: config.admin.trusted_proxies.clone(),
            members: c.members.clone(),
            follow: Follow::Always,
        }
    }
}

/// One application's console.
pub struct Console {
    /// Whose operations.
    pub app: ApplicationId,
    /// What it reads and writes.
    pub books: Arc<dyn Books>,
    /// Who may sign in by a token.
    pub people: Option<People>,
    /// The issuer that signs people in. Without it and without tokens nobody can: it is read-only.
    pub oidc: Option<Oidc>,
    /// Sessions of browsers.
    pub sessions: Arc<Sessions>,
    /// Orders that wait for a second person.
    pub waiters: Arc<Waiters>,
    /// Whether cookies go over TLS only, whatever a request says.
    pub secure: bool,
    /// Proxies whose word is believed of where a request came from.
    pub proxies: Vec<Net>,
    /// How long an order waits for its answer.
    pub answer_within: Duration,
    /// How long the body of a request may take.
    pub body_within: Duration,
    /// Room for requests that are answered at once.
    pub room: Arc<Semaphore>,
    /// Where requests may be submitted, as far as the topology is known.
    pub doors: Doors,
    /// Room for submissions that wait.
    pub waiting: Arc<Semaphore>,
    /// What members measure of themselves: this process, or those that are asked.
    pub rates: Option<Rates>,
    /// The topic of dead letters, where it is known.
    pub dead_letters: Option<TopicName>,
    /// What the application's files say, where they are known.
    pub subject: Option<Subject>,
    /// How often the pages that are followed are looked at for changes.
    pub look_every: Duration,
    /// Room for pages that are followed.
    pub streams: Arc<Semaphore>,
    /// Settings of this process that are not the default.
    pub settings: Vec<Setting>,
    looks: Looks,
    tries: Tries,
    tail: Tail,
    _listener: Option<Listener>,
    clock: SharedClock,
}

/// How long an order waits for its answer, as `readback ops` does.
const ANSWER: Duration = Duration::from_secs(20);
/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(10);

impl Console {
    /// Starts to read the operations of `app`.
    ///
    /// # Errors
    /// `CONSOLE_EXPOSED` for an address that others reach without anybody having to sign in; what is wrong with the tokens.
    pub fn start<C: Cluster>(cluster: &C, app: &ApplicationId, settings: &Settings, clock: SharedClock) -> Result<Self> {
        let local = is_loopback(&settings.listen);
        if settings.tokens.is_none() && settings.oidc.is_none() && !local {
            let doing = format!("serving the console on {}", settings.listen);
            return Err(Error::new(codes::CONSOLE_EXPOSED, Fault::Configuration, doing)
                .because("whoever reaches that address would see every operation: nobody has to sign in")
                .next(
                    "name a file of tokens in console.tokens (`readback console token` makes its lines) or an issuer in console.oidc, \
                     or listen on 127.0.0.1",
                ));
        }
        let people = settings.tokens.as_deref().map(People::open).transpose()?;
        let oidc = settings.oidc.as_ref().map(Oidc::new).transpose()?;
        let sessions = Arc::new(match &settings.session_secret {
            Some(of) => Sessions::following(of.clone(), settings.session)?,
            None => Sessions::new(None, settings.session),
        });
        let waiters = Arc::<Waiters>::default();
        let shared = settings.session_secret.is_some() && (people.is_some() || oidc.is_some());
        let named = Some(&settings.members).filter(|m| !m.is_empty());
        let peers = named.map(|m| Peers::new(m.clone(), app.clone())).transpose()?;
        let ears = Ears { sessions: sessions.clone(), waiters: waiters.clone(), clock: clock.clone() };
        Ok(Self {
            app: app.clone(),
            books: Arc::new(KafkaBooks::new(cluster.clone(), app.clone())),
            people,
            oidc,
            sessions,
            waiters,
            secure: !local,
            proxies: settings.proxies.clone(),
            answer_within: ANSWER,
            body_within: BODY,
            room: Arc::new(Semaphore::new(server::AT_ONCE)),
            doors: Doors::default(),
            waiting: Arc::new(Semaphore::new(submit::WAITING)),
            rates: peers.map(|p| Rates::start(Source::Peers(p))),
            dead_letters: None,
            subject: None,
            look_every: live::EVERY,
            streams: Arc::new(Semaphore::new(live::STREAMS)),
            settings: Vec::new(),
            looks: Looks::default(),
            tries: Tries::default(),
            tail: Tail::start(cluster.clone(), app.clone(), settings.follow),
            _listener: shared.then(|| Listener::start(cluster.clone(), app.clone(), ears)),
            clock,
        })
    }

    /// With what this process measures of itself, where no members are asked.
    #[must_use]
    pub fn measured(mut self, registry: prometheus::Registry) -> Self {
        self.rates.get_or_insert_with(|| Rates::start(Source::Own(registry)));
        self
    }
    /// With what the application's files say: the graph, the topic of dead letters, budgets, what is promised.
    #[must_use]
    pub fn of(mut self, subject: Subject) -> Self {
        self.dead_letters.clone_from(&subject.application.dead_letters);
        self.subject = Some(subject);
        self
    }

    /// With doors for requests.
    #[must_use]
    pub fn taking(mut self, doors: Doors) -> Self {
        self.doors = doors;
        self
    }

    /// With the settings of this process.
    #[must_use]
    pub fn configured(mut self, settings: Vec<Setting>) -> Self {
        self.settings = settings;
        self
    }

    /// What the tail keeps.
    pub fn kept(&self) -> &Kept {
        &self.tail.kept
    }
    /// The time.
    pub fn now(&self) -> WallTime {
        self.clock.now().wall
    }

    /// The one operation that is meant.
    ///
    /// # Errors
    /// `UNKNOWN_OPERATION`; `USAGE` where the ID is not unique.
    pub fn one(&self, operation: &str, tenant: Option<&str>, step: Option<&str>) -> Result<Listed> {
        let mut found = self.kept().index().find(operation, tenant, step);
        match (found.pop(), found.as_slice()) {
            (Some(one), []) => Ok(one),
            (Some(last), others) => {
                let all = others.iter().chain([&last]).map(|l| format!("{} at {}", l.key.tenant, l.key.step)).collect::<Vec<_>>();
                Err(Error::new(codes::USAGE, Fault::Configuration, format!("looking for operation {operation}: it is not unique"))
                    .because(all.join(", "))
                    .next("name tenant and step"))
            }
            (None, _) => {
                let doing = format!("looking for operation {operation}: nobody knows it");
                let next = match self.kept().progress().whole {
                    true => "closed operations are forgotten after their retention",
                    false => "operations are still being read: look again in a moment",
                };
                Err(Error::new(codes::UNKNOWN_OPERATION, Fault::Verdict, doing).next(next))
            }
        }
    }

    /// All that is known of an operation, read from Kafka now.
    ///
    /// # Errors
    /// `UNKNOWN_OPERATION`, `BROKER_UNREACHABLE`.
    pub fn evidence(&self, key: &OperationKey) -> Result<Seen> {
        for _ in 0..20 {
            let listed = self.one(key.operation.as_str(), Some(key.tenant.as_str()), Some(key.step.as_str()))?;
            if let Some(seen) = self.books.read(&listed)? {
                return Ok(seen);
            }
            // It has changed since the tail read it.
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(Error::new(codes::BROKER_UNREACHABLE, Fault::Unreachable, format!("reading the evidence of {}", key.operation))
            .because("it keeps changing, or the tail does not follow")
            .next("look again"))
    }

    /// What stands around an operation, as the tail has it.
    pub fn around(&self, key: &OperationKey, seen: &Seen) -> Around {
        Around::of(key, seen, |key| {
            let l = self.one(key.operation.as_str(), Some(key.tenant.as_str()), Some(key.step.as_str())).ok()?;
            Some(Stands { status: l.status, code: l.code, detail: l.detail, since: l.changed_at })
        })
    }

    /// Whether anybody can sign in: else it is read-only.
    pub fn signs_in(&self) -> bool {
        self.people.is_some() || self.oidc.is_some()
    }

    /// The person of a session, if it may still be one: by their line in the file as it is now, or by the issuer's word at sign-in.
    ///
    /// # Errors
    /// What is wrong with the file of tokens.
    pub fn person_of(&self, claim: &Claim) -> Result<Option<Person>> {
        if vouched(&claim.token) {
            let person = Person { name: claim.name.clone(), roles: claim.roles.clone(), token: claim.token.clone() };
            return Ok(self.oidc.is_some().then_some(person).filter(|p| !p.roles.is_empty()));
        }
        self.people.as_ref().map_or(Ok(None), |people| people.known(&claim.name, &claim.token))
    }

    /// Whose token this is; wrong ones are bounded for each address.
    ///
    /// # Errors
    /// `TOO_MANY_TRIES`; what is wrong with the file of tokens.
    pub fn by_token(&self, token: &str, from: &str, now: WallTime) -> Result<Option<Person>> {
        let person = self.people.as_ref().map_or(Ok(None), |people| people.verify(token))?;
        if person.is_none() {
            let e = Error::new(codes::SIGN_IN_REQUIRED, Fault::Verdict, "signing in").because("nobody is known by this token");
            self.wrong(from, now, &e)?;
        }
        Ok(person)
    }

    /// Whose bearer token this is: a line of the file, or a JWT of the issuer.
    ///
    /// # Errors
    /// `TOO_MANY_TRIES`, `SIGN_IN_REFUSED`, `NOT_PERMITTED`, `ISSUER_UNREACHABLE`; what is wrong with the file of tokens.
    pub fn by_bearer(&self, token: &str, from: &str, now: WallTime) -> Result<Option<Person>> {
        let Some(oidc) = self.oidc.as_ref().filter(|o| o.is_token(token)) else { return self.by_token(token, from, now) };
        match oidc.bearer(token, now) {
            Ok(vouched) => Ok(Some(vouched.person)),
            Err(e) => {
                self.wrong(from, now, &e)?;
                Err(e)
            }
        }
    }

    /// Somebody at this address was wrong: an audit record while there are few of them, an error once there are too many. A token has
    /// 244 bits, so the bound keeps nobody from guessing; it bounds the audit topic. Behind a proxy that is not declared all have one address, so who is
    /// right is never kept waiting: a stranger must not lock out people on duty. An issuer that is away is nobody's fault.
    ///
    /// # Errors
    /// `TOO_MANY_TRIES`.
    pub fn wrong(&self, from: &str, now: WallTime, why: &Error) -> Result<()> {
        if why.fault == Fault::Unreachable {
            return Ok(());
        }
        let address = from.parse::<IpAddr>().unwrap_or(IpAddr::from([0, 0, 0, 0]));
        if let Some(wait) = self.tries.wait(address, now) {
            return Err(Error::new(codes::TOO_MANY_TRIES, Fault::Verdict, format!("signing in from {from}"))
                .because("there were too many wrong tries from there")
                .next(format!("wait {} s", wait.as_secs())));
        }
        self.tries.wrong(address, now);
        let mut entry = Entry::new(now, "", from, "sign_in", Came::Refused);
        (entry.code, entry.detail) = (Some(why.code.to_string()), crate::outbox::cut(&problem::words(why)));
        self.note(&entry);
        Ok(())
    }

    /// Writes down what is over already: that it can't be written must not undo it.
    pub fn note(&self, entry: &Entry) {
        if let Err(e) = self.books.audit(entry) {
            tracing::error!(error = %e, who = entry.who, action = entry.action, came = ?entry.came, "an audit record is not written");
        }
    }
}

/// Whether an address is reached from this machine only.
pub fn is_loopback(listen: &str) -> bool {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Whether a `Host` is a name of this machine that only itself can use.
fn is_loopback_host(host: &str) -> bool {
    is_loopback(host) || is_loopback(&format!("{host}:0"))
}

#[cfg(test)]
pub(crate) mod tests;
