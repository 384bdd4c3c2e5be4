//! What changes around a member: a setting of its topics while it runs, and the stores of its own next version.

use std::path::{Path, PathBuf};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;

use crate::processes::Running;
use crate::{shared, stack, until};

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
    let mut accepted = start(&renamed, "accepted", &word);
    accepted.until_running();
    assert_eq!(accepted.terminate().code(), Some(0), "{}", accepted.said());
}
