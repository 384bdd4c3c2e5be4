//! Logins, certificates and permissions of a real broker; secrets that change while members run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use readback::config::{Identity, Secret, SecretRef};
use readback::error::codes;
use readback::registry::{Registry, RegistryAuth, Trust};

use crate::notices::{Service, ask, topology, topology_with_token};
use crate::processes::Running;
use crate::secured::{Front, Issuer, certificate, replace, results, say, secure};
use crate::story::program;
use crate::wire::{allow_alone, deny, scram};
use crate::{shared, stack, until};

/// Kafka's numbers: the resource and the operation.
const GROUP: i8 = 3;
const TRANSACTIONAL_ID: i8 = 5;
const WRITE: i8 = 4;

/// How long a token lives: longer than the broker lets a connection stand on one.
const TOKEN: Duration = Duration::from_secs(8);

/// Settings by their variables.
type Settings = Vec<(&'static str, String)>;

/// Settings of a login, given raw.
pub fn signed_in<'a>(user: &'a str, password: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("READBACK_BROKERS", stack().sasl().expect("this test needs a local stack: unset READBACK_BROKERS")),
        ("READBACK_KAFKA__SECURITY_PROTOCOL", "sasl_plaintext"),
        ("READBACK_KAFKA__SASL_MECHANISM", "PLAIN"),
        ("READBACK_KAFKA__SASL_USERNAME", user),
        ("READBACK_KAFKA__SASL_PASSWORD", password),
    ]
}

/// A name of its own for an application.
pub fn named(name: &str) -> String {
    format!("{name}-{}", &uuid::Uuid::new_v4().simple().to_string()[..6])
}

fn pem(name: &str) -> String {
    secure().dir.join(name).display().to_string()
}

fn tls(brokers: &str) -> Settings {
    vec![("READBACK_BROKERS", brokers.to_owned()), ("READBACK_SECURITY__CA", pem("ca.pem"))]
}

fn with_certificate(certificate: &Path, key: &Path) -> Settings {
    let mut settings = tls(&secure().mtls);
    settings.push(("READBACK_SECURITY__CERTIFICATE", certificate.display().to_string()));
    settings.push(("READBACK_SECURITY__KEY", key.display().to_string()));
    settings
}

fn with_password(mechanism: &str, user: &str, file: &Path) -> Settings {
    let mut settings = tls(&secure().sasl);
    settings.push(("READBACK_SECURITY__SASL__MECHANISM", mechanism.to_owned()));
    settings.push(("READBACK_SECURITY__SASL__USERNAME", user.to_owned()));
    settings.push(("READBACK_SECURITY__SASL__PASSWORD__FILE", file.display().to_string()));
    settings
}

fn with_token(issuer: &Issuer, secret: &Path) -> Settings {
    let mut settings = tls(&secure().sasl);
    settings.extend([
        ("READBACK_SECURITY__SASL__MECHANISM", "OAUTHBEARER".to_owned()),
        ("READBACK_SECURITY__SASL__OAUTH__TOKEN_ENDPOINT", issuer.url.clone()),
        ("READBACK_SECURITY__SASL__OAUTH__CLIENT_ID", "stage".to_owned()),
        ("READBACK_SECURITY__SASL__OAUTH__CLIENT_SECRET__FILE", secret.display().to_string()),
        ("READBACK_SECURITY__SASL__OAUTH__CA", pem("ca.pem")),
    ]);
    settings
}

/// A member with its target; the stream of one application.
struct Story {
    app: String,
    work: tempfile::TempDir,
    service: Service,
    member: Running,
    asked: usize,
}

impl Story {
    fn start(name: &str, settings: impl FnOnce(&Path, &str) -> Settings) -> Self {
        let (work, app, service) = (tempfile::tempdir().expect("a directory"), named(name), Service::start());
        let settings = settings(work.path(), &app);
        let mut more: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        more.push(("NOTICES_URL", &service.url));
        let token = work.path().join("token");
        let topology = if token.exists() { topology_with_token(work.path(), &app, &token) } else { topology(work.path(), &app) };
        let member = Running::with(&topology, &work.path().join("state"), "member", &more);
        let mut story = Self { app, work, service, member, asked: 0 };
        story.member.until_running();
        story
    }
    /// One more operation.
    fn ask(&mut self) {
        self.asked += 1;
        ask(&self.app, &format!("op-{}", self.asked));
    }
    /// Until every operation was posted.
    fn until_done(&mut self) {
        until("every notice", || {
            assert!(self.member.try_wait().is_none(), "it ended: {}", self.member.said());
            (self.service.posts().len() == self.asked).then_some(())
        });
    }
    fn until_said(&mut self, what: &str) {
        until(what, || {
            assert!(self.member.try_wait().is_none(), "it ended: {}", self.member.said());
            self.member.said().contains(what).then_some(())
        });
    }
    /// Leaves in order: each operation was posted once, no result is there twice, and no secret was said.
    fn end(mut self, secrets: &[&str]) {
        self.until_done();
        assert_eq!(self.member.terminate().code(), Some(0), "{}", self.member.said());
        let once: BTreeMap<String, usize> = (1..=self.asked).map(|n| (format!("op-{n}"), 1)).collect();
        assert_eq!(self.service.posts(), once, "{}", self.member.said());
        let mut ids = results(&self.app);
        let all = ids.len();
        ids.sort();
        ids.dedup();
        assert!(all >= self.asked && ids.len() == all, "{ids:?}");
        let said = self.member.said();
        assert!(secrets.iter().all(|s| !said.contains(s)), "{said}");
    }
}

/// If this broke, no cluster that asks for a login could be used with the client's own settings.
#[test]
fn a_member_signs_in_and_does_its_work() {
    let _shared = shared();
    let own = |(name, value): (&'static str, &str)| (name, value.to_owned());
    let mut story = Story::start("sasl", |_, _| signed_in("readback", "readback").into_iter().map(own).collect());
    story.ask();
    story.end(&["password"]);
}

/// If this broke, a way of signing in that brokers ask for could not be used: each member reads, calls and commits in transactions.
#[test]
fn every_login_and_certificate_carries_a_member() {
    let _shared = shared();
    let password = |mechanism: &'static str| {
        move |work: &Path, _: &str| {
            let file = work.join("password");
            std::fs::write(&file, "readback\n").expect("writes");
            with_password(mechanism, "readback", &file)
        }
    };
    std::thread::scope(|all| {
        let run = |name: &'static str, settings: Box<dyn FnOnce(&Path, &str) -> Settings + Send>| {
            all.spawn(move || {
                let mut story = Story::start(name, settings);
                story.ask();
                story.end(&[]);
            });
        };
        run("plain", Box::new(password("PLAIN")));
        run("scram256", Box::new(password("SCRAM-SHA-256")));
        run("tls", Box::new(|_, _| tls(&secure().tls)));
        run("mtls", Box::new(|_, _| with_certificate(&secure().dir.join("client.pem"), &secure().dir.join("client.key"))));
    });
}

/// What `ops list` says with these settings.
fn refused(settings: &[(&str, String)]) -> String {
    let envs = settings.iter().map(|(name, value)| (*name, value.as_str()));
    let out = Command::new(program()).args(["ops", "list"]).envs(envs).output().expect("it runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(3), "{said}");
    said
}

/// If this broke, a wrong password would look like a broker that is away.
#[test]
fn a_wrong_password_is_told_as_what_it_is() {
    let _shared = shared();
    let own = |(name, value): (&'static str, &str)| (name, value.to_owned());
    let said = refused(&signed_in("readback", "wrong").into_iter().map(own).collect::<Vec<_>>());
    assert!(said.contains("Authentication failed") && said.contains("RB0314") && !said.contains("wrong"), "{said}");
}

/// If this broke, whoever is on duty would look at the network where a certificate or a token is the cause.
#[test]
fn what_a_broker_refuses_has_its_code_and_next_step() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = work.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path
    };
    let s = secure();
    let with = |mut settings: Settings, name: &'static str, value: String| {
        settings.retain(|(n, _)| *n != name);
        settings.push((name, value));
        settings
    };
    let elsewhere = Issuer::start("elsewhere", Duration::from_secs(60));
    let here = Issuer::start("kafka", Duration::from_secs(60));
    let cases = [
        (with(tls(&s.tls), "READBACK_SECURITY__CA", pem("other.pem")), "RB0313", "name the authority"),
        (tls(&s.tls.replace("localhost", "127.0.0.1")), "RB0313", "use the host name"),
        (tls(&s.expired), "RB0313", "renew the certificate"),
        (tls(&s.mtls), "RB0313", "security.certificate"),
        (with_password("SCRAM-SHA-512", "readback", &file("wrong", "hunter2")), "RB0314", "check the login"),
        (with_token(&elsewhere, &file("secret", "first")), "RB0314", "audience"),
        (with_token(&here, &file("unknown", "hunter2")), "RB0315", "client_secret"),
    ];
    std::thread::scope(|all| {
        for (settings, code, next) in cases {
            all.spawn(move || {
                let said = refused(&settings);
                assert!(said.contains(code) && said.contains(next) && !said.contains("hunter2"), "{code} {next}: {said}");
            });
        }
    });
}

/// If this broke, a password could be rotated only with a restart, or a record would be lost or doubled on the way.
#[test]
fn a_password_changes_under_a_running_member() {
    let _shared = shared();
    let user = named("rotated");
    scram(&user, "password-one");
    let mut story = Story::start("scram", |work, _| {
        let file = work.join("password");
        std::fs::write(&file, "password-one\n").expect("writes");
        with_password("SCRAM-SHA-512", &user, &file)
    });
    story.ask();
    story.until_done();
    scram(&user, "password-two");
    // The broker lets nobody stay signed in for longer than three seconds.
    story.until_said("the broker can't be talked to");
    story.ask();
    replace(&story.work.path().join("password"), "password-two\n");
    story.until_said("the password for the brokers has changed");
    story.ask();
    story.end(&["password-one", "password-two"]);
}

/// C043: if this broke, a member would end with its token, or with the secret that fetches it; or an outage of the token server, longer
/// than tokens live and than the broker lets a connection stand without a new one, would take a restart or repeat an effect.
#[test]
fn c043_tokens_and_their_secret_change_under_a_running_member() {
    let _shared = shared();
    let issuer = Issuer::start("kafka", TOKEN);
    let mut story = Story::start("oauth", |work, _| {
        let secret = work.join("secret");
        std::fs::write(&secret, "first").expect("writes");
        let mut settings = with_token(&issuer, &secret);
        // The group waits for longer than the outage.
        settings.push(("READBACK_GROUP__SESSION_TIMEOUT", "30s".to_owned()));
        settings
    });
    story.ask();
    story.until_done();
    say(&issuer.secret, "second");
    story.until_said("there is no new token");
    story.ask();
    std::thread::sleep(TOKEN * 2);
    replace(&story.work.path().join("secret"), "second");
    let given = *issuer.given.lock().expect("no panic");
    until("two more tokens", || (*issuer.given.lock().expect("no panic") > given + 1).then_some(()));
    story.ask();
    story.end(&["eyJ"]);
}

/// If this broke, a certificate could be replaced only with a restart, or a record would be lost or doubled on the way.
#[test]
fn a_certificate_changes_under_a_running_member() {
    let _shared = shared();
    let (first, second) = (named("first"), named("second"));
    let mut story = Story::start("cert", |work, _| {
        let (certificate, key) = certificate(work, &first);
        std::fs::copy(certificate, work.join("tls.pem")).expect("copies");
        std::fs::copy(key, work.join("tls.key")).expect("copies");
        with_certificate(&work.join("tls.pem"), &work.join("tls.key"))
    });
    let work = story.work.path().to_owned();
    let (certificate, key) = certificate(&work, &second);
    story.ask();
    story.until_done();
    // One file after the other, as nobody should: in between the pair can't be used.
    replace(&work.join("tls.pem"), std::fs::read(certificate).expect("reads"));
    story.until_said("can't be used; clients stay as they are");
    story.ask();
    replace(&work.join("tls.key"), std::fs::read(key).expect("reads"));
    story.until_said("a new consumer takes over");
    for n in 0..20 {
        story.ask();
        std::thread::sleep(Duration::from_millis(n));
    }
    story.until_done();
    // From now on whoever still comes by the first certificate can do nothing.
    let who = format!("User:{second}");
    allow_alone(&who, TRANSACTIONAL_ID, &story.app);
    allow_alone(&who, GROUP, &story.app);
    story.ask();
    story.end(&[]);
}

/// If this broke, a target's token could be rotated only with a restart.
#[test]
fn a_targets_token_changes_under_a_running_member() {
    let _shared = shared();
    let mut story = Story::start("bearer", |work, _| {
        std::fs::write(work.join("token"), "token-one\n").expect("writes");
        Vec::new()
    });
    story.service.wants("token-one");
    story.ask();
    story.until_done();
    replace(&story.work.path().join("token"), "token-two\n");
    story.service.wants("token-two");
    story.ask();
    story.end(&["token-one", "token-two"]);
}

/// If this broke, a registry behind TLS could not be used, or only until its token or our certificate is replaced.
#[test]
fn the_registry_is_reached_by_tls_with_a_token_and_a_certificate_that_change() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let subject = format!("{}-value", named("tls"));
    let schema = r#"{"type":"record","name":"Op","fields":[{"name":"id","type":"string"}]}"#;
    let trust = |ca: &str| Trust { ca: Some(secure().dir.join(ca)), identity: None };
    let of_stack = |trust| Registry::trusting(&secure().registry, RegistryAuth::None, trust).expect("a client");
    let id = of_stack(trust("ca.pem")).register(&subject, schema).expect("registers");
    let refused = of_stack(trust("other.pem")).register(&subject, schema).expect_err("a foreign authority");
    assert_eq!(refused.code, codes::REGISTRY_REFUSED);
    assert!(refused.to_string().contains("ertificate"), "{refused}");

    let front = Front::start();
    let token = work.path().join("token");
    std::fs::write(&token, "first\n").expect("writes");
    let auth = || RegistryAuth::Bearer(SecretRef::File(token.clone()));
    let (ours, key) = certificate(work.path(), "registry-client");
    let identity = Identity { certificate: ours.clone(), key: key.clone(), key_password: None };
    let stranger = Registry::trusting(&front.url, auth(), trust("ca.pem")).expect("a client");
    stranger.id_of(&subject, schema).expect_err("no certificate of ours");
    let registry = Registry::trusting(&front.url, auth(), Trust { identity: Some(identity), ..trust("ca.pem") }).expect("a client");
    assert_eq!(registry.id_of(&subject, schema).expect("is there"), id);
    say(&front.token, "second");
    assert_eq!(registry.id_of(&subject, schema).expect_err("an old token").code, codes::REGISTRY_REFUSED);
    replace(&token, "second\n");
    assert_eq!(registry.id_of(&subject, schema).expect("the new token"), id);
    let (next, next_key) = certificate(work.path(), "registry-client-2");
    replace(&ours, std::fs::read(next).expect("reads"));
    replace(&key, std::fs::read(next_key).expect("reads"));
    assert_eq!(registry.id_of(&subject, schema).expect("the new certificate"), id);
    let wrong = RegistryAuth::Bearer(SecretRef::Literal(Secret::new("hunter2")));
    let wrong = Registry::trusting(&front.url, wrong, Trust { identity: None, ..trust("ca.pem") }).expect("a client");
    assert!(!wrong.id_of(&subject, schema).expect_err("nobody's token").to_string().contains("hunter2"));
}

/// C046: if this broke, a missing permission on the transactional id would be a hang or an endless retry.
#[test]
fn c046_a_missing_permission_on_the_transactional_id_ends_the_start() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = named("denied");
    deny("User:limited", TRANSACTIONAL_ID, &format!("{app}-"), WRITE);
    let mut more = signed_in("limited", "limited");
    more.push(("NOTICES_URL", "http://127.0.0.1:9"));
    let mut member = Running::with(&topology(work.path(), &app), &work.path().join("state"), "member", &more);
    let ended = until("it ends", || member.try_wait());
    let said = member.said();
    assert_eq!(ended.code(), Some(2), "{said}");
    for part in ["RB0308", "allow Write and Describe on this transactional id", &format!("init_transactions {app}-000")] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}
