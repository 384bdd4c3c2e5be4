//! What changes around a member: a setting of its topics while it runs, and the stores of its own next version.

use std::path::{Path, PathBuf};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use readback::kafka::{Cluster as _, NewTopic};

use crate::processes::Running;
use crate::security::signed_in;
use crate::wire::{allow_alone, deny};
use crate::{cluster_at, shared, stack, until};

const TOPIC: i8 = 2;
const READ: i8 = 3;
const DESCRIBE_CONFIGS: i8 = 10;

/// The word count of `topology/clicks` under names of its own; `by` names its store.
fn counting(work: &Path, app: &str, by: &str) -> PathBuf {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/clicks/topology.yaml");
    let text = std::fs::read_to_string(shipped).expect("it is shipped");
    let own = text.replace("click-counts", app).replace("shop.", &format!("{app}.")).replace("by-page", by);
    let dir = work.join(by);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("topology.yaml"), own).expect("written");
    dir
}

/// Sets some of a topic's settings; its others go back to the broker's.
fn set(topic: &str, settings: &[(&str, &str)]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", stack().brokers()).create().expect("an admin client");
    let new = AlterConfig::new(ResourceSpecifier::Topic(topic));
    let change = settings.iter().fold(new, |change, (key, value)| change.set(key, value));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let done = runtime.block_on(admin.alter_configs([&change], &AdminOptions::new())).expect("asked");
    done.into_iter().for_each(|one| assert!(one.is_ok(), "{one:?}"));
}

/// If this broke, records would be deleted before they are read, state lost at the next restore, or a renamed store begin empty, and
/// nobody be told.
#[test]
fn what_no_longer_holds_is_told_ends_the_member_and_is_refused_at_a_start() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("settings-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let (dir, state) = (counting(work.path(), &app, "by-page"), work.path().join("state"));
    let start = |dir: &Path, name: &str, word: &str| {
        Running::with(dir, &state, name, &[("READBACK_TOPICS__WATCH", "1s"), ("READBACK_TOPICS__ACCEPT_RESET", word)])
    };
    let mut member = start(&dir, "watched", "");
    member.until_running();
    until("what runs is stored", || {
        let mut diff = std::process::Command::new(crate::story::program());
        let told = diff.arg("diff").arg(&dir).env("READBACK_BROKERS", stack().brokers()).output().expect("it runs").stdout;
        String::from_utf8_lossy(&told).contains("that readback").then_some(())
    });

    set(&format!("{app}.page-counts"), &[("retention.ms", "3600000")]);
    until("the change is told", || {
        let said = member.said();
        said.lines().any(|l| l.contains("RB0416") && l.contains("page-counts") && l.contains("3600000")).then_some(())
    });
    assert!(member.try_wait().is_none(), "it goes on: {}", member.said());

    let (kept, policy) = (format!("{app}-by-page-repartition"), "cleanup.policy");
    set(&kept, &[(policy, "compact"), ("retention.ms", "-1")]);
    let ended = until("it ends", || member.try_wait());
    let said = member.said();
    assert_eq!(ended.code(), Some(2), "{said}");
    for part in
        ["RB0303", &format!("watching topic {kept}"), "became compact, it must be delete", "--add-config cleanup.policy=delete"]
    {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let mut again = start(&dir, "refused", "");
    assert_eq!(until("it ends", || again.try_wait()).code(), Some(2), "{}", again.said());
    assert!(again.said().contains("RB0303"), "{}", again.said());
    set(&kept, &[(policy, "delete"), ("retention.ms", "-1")]);

    let renamed = counting(work.path(), &app, "by-site");
    let mut reset = start(&renamed, "renamed", "");
    assert_eq!(until("it ends", || reset.try_wait()).code(), Some(2), "{}", reset.said());
    let said = reset.said();
    assert!(said.contains("RB0413") && said.contains("store by-page"), "{said}");
    let word = said.split("--accept-reset ").nth(1).and_then(|t| t.get(..12)).expect("the word is told").to_owned();
    // Its slot still holds what it was assigned under the old graph, until the group has forgotten it.
    let admin = cluster_at(stack().brokers()).admin().expect("admin");
    until("its session is over", || admin.members(&app.as_str().into()).ok()?.is_empty().then_some(()));
    let mut accepted = start(&renamed, "accepted", &word);
    accepted.until_running();
    assert_eq!(accepted.terminate().code(), Some(0), "{}", accepted.said());
}

/// Makes the topics that [`counting`] reads and writes; the name of its source, once brokers know it.
fn topics_of(app: &str) -> String {
    let admin = cluster_at(stack().brokers()).admin().expect("admin");
    let [visits, counts, dead] = ["visits", "page-counts", "visits.dead"].map(|name| format!("{app}.{name}"));
    let topic = |name: &String| NewTopic { name: name.as_str().into(), partitions: 1, replication: 1, config: Default::default() };
    admin.create(&[&visits, &counts, &dead].map(topic)).expect("created");
    until("they are there", || admin.topic(&visits.as_str().into()).ok()?.map(drop));
    visits
}

/// `check --live` by the login that may be forbidden things: its exit code and what it says.
fn checked_by_limited(dir: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut check = std::process::Command::new(crate::story::program());
    let out = check.args(["check", "--live"]).args(more).arg(dir).envs(signed_in("limited", "limited")).output().expect("it runs");
    let [said, complained] = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    (out.status.code(), said, complained)
}

/// If this broke, a member would be deployed under a login that cannot read its source, and `check --live` have called it good.
#[test]
fn a_permission_that_is_missing_contradicts() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("reads-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let dir = counting(work.path(), &app, "by-page");
    let visits = topics_of(&app);
    let check = || {
        let (code, said, complained) = checked_by_limited(&dir, &["--permissions"]);
        (code, said + &complained)
    };
    let (code, told) = check();
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains("were not read"), "{told}");
    assert!(told.contains(&format!("--topic '{visits}'   (this login has it)")), "{told}");
    assert!(told.contains(&format!("group {app}: nobody")), "{told}");
    for has in [format!("group {app}  "), format!("transactional-id {app}-*  "), "the cluster  ".to_owned()] {
        assert!(told.lines().any(|l| l.trim_start().starts_with("has ") && l.contains(&has)), "no {has} in\n{told}");
    }
    assert!(told.contains("no topic begins with it yet"), "what could not be tried is said: {told}");
    deny("User:limited", TOPIC, &visits, READ);
    until("it is refused", || {
        let (code, told) = check();
        let both = told.contains("RB0308") && told.contains(&format!("--topic '{visits}'   (refused)"));
        (code == Some(2) && both).then_some(())
    });
}

/// If this broke, `check --live` would be green over settings that it never saw, and a member would notice no change of them in silence.
#[test]
fn settings_that_may_not_be_read_are_told_and_nothing_that_rests_on_them_holds() {
    let _shared = shared();
    let work = tempfile::tempdir().expect("a directory");
    let app = format!("blind-{}", &uuid::Uuid::new_v4().simple().to_string()[..6]);
    let dir = counting(work.path(), &app, "by-page");
    let visits = topics_of(&app);
    let page = work.path().join("report.html");
    let check = |more: &[&str]| {
        let (code, said, _) = checked_by_limited(&dir, more);
        (code, said)
    };
    allow_alone("User:limited", TOPIC, &visits);
    deny("User:limited", TOPIC, &visits, DESCRIBE_CONFIGS);
    let refused = format!("settings of {visits} were not read: needs DescribeConfigs on topic {visits}");
    until("it is refused", || check(&[]).1.contains(&refused).then_some(()));
    let (code, told) = check(&["--html", page.to_str().expect("text")]);
    assert_eq!(code, Some(0), "a member runs without: {told}");
    for part in ["not everything was read", "not known to hold: not read", "DescribeConfigs", "settings not read"] {
        assert!(told.contains(part), "no {part} in\n{told}");
    }
    assert!(
        told.lines().any(|l| l.trim_start().starts_with("lacks ") && l.contains(&visits) && l.ends_with("DescribeConfigs")),
        "{told}"
    );
    assert!(!told.lines().any(|l| l.trim_start().starts_with("holds ") && l.contains(&format!("{visits}:"))), "{told}");
    let page = std::fs::read_to_string(page).expect("written");
    assert!(page.contains(&refused) && page.contains("not known to hold"), "{page}");
    let report: serde_json::Value = serde_json::from_str(&check(&["--output", "json"]).1).expect("JSON");
    assert_eq!(
        (&report["unread"][0]["name"], &report["unread"][0]["operation"]),
        (&visits.clone().into(), &"DescribeConfigs".into())
    );
    let standing = |from: &str| {
        let edges = report["edges"].as_array().into_iter().flatten();
        edges.filter(|e| e["edge"].as_str().is_some_and(|e| e.starts_with(from))).map(|e| e["standing"].clone()).collect::<Vec<_>>()
    };
    assert!(!standing(&visits).is_empty() && standing(&visits).iter().all(|s| s == "not_read"), "{report}");

    let mut more = signed_in("limited", "limited");
    more.push(("READBACK_TOPICS__WATCH", "1s"));
    let mut member = Running::with(&dir, &work.path().join("state"), "blind", &more);
    member.until_running();
    let warned = |said: &str| said.lines().filter(|l| l.contains("settings were not read") && l.contains(&visits)).count();
    until("it is told", || (warned(&member.said()) > 0).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let said = member.said();
    assert!(warned(&said) == 1 && said.contains("RB0308"), "once, not at every look: {said}");
    assert_eq!(member.terminate().code(), Some(0), "{}", member.said());
}
