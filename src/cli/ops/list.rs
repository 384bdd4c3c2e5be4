//! `readback ops list`: the console's search on the command line, and its answer as lines.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::admin::views::Seen;
use crate::console::index::{FLAGS, Listed, flag_word};
use crate::console::search::{Cursor, Search, age, escape};
use crate::console::shown::Row;
use crate::error::{Error, Fault, Result, codes};
use crate::ids::OperationKey;
use crate::intents::Status;
use crate::time::{WallTime, show_duration};

use super::span;
use crate::cli::Format;
use crate::cli::output::{tone_of, toned};

/// Which operations.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only these statuses, with commas.
    #[arg(long, value_delimiter = ',', value_parser = status_words())]
    status: Vec<String>,
    /// Only this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only this effect step.
    #[arg(long)]
    step: Option<String>,
    /// Only this target: `orders#create`.
    #[arg(long)]
    target: Option<String>,
    /// Only this resource.
    #[arg(long)]
    resource: Option<String>,
    /// A whole operation ID finds that operation; else what operation ID or resource contains.
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only those with this flag.
    #[arg(long, value_parser = PossibleValuesParser::new(FLAGS.map(flag_word)))]
    flag: Option<String>,
    /// Only those that have stood so for longer.
    #[arg(long, value_parser = span)]
    longer_than: Option<Duration>,
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    pub(super) limit: usize,
    /// Go on behind this place, which the page before named.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// What `--status` takes: the words of results, and `held` for commands that came before their operation.
pub(super) fn status_words() -> PossibleValuesParser {
    let words = Status::ALL.iter().filter(|s| !s.of_a_message()).map(|s| s.word());
    PossibleValuesParser::new(words.chain(["held"]).map(PossibleValue::new))
}

/// The word of a status that only commands have.
const HELD: &str = "held";

impl ListArgs {
    /// As the console searches: the oldest change first.
    ///
    /// # Errors
    /// `BAD_VALUE`; `USAGE` for `held`, which no search knows, beside others.
    pub fn search(&self) -> Result<Search> {
        let status: Vec<&str> = self.status.iter().map(String::as_str).filter(|s| *s != HELD).collect();
        let older = self.longer_than.map(age);
        let given = [
            ("tenant", &self.tenant),
            ("step", &self.step),
            ("target", &self.target),
            ("resource", &self.resource),
            ("q", &self.search),
            ("flag", &self.flag),
            ("older", &older),
            ("cursor", &self.after),
        ];
        let given = given.iter().filter_map(|(key, value)| Some(format!("&{key}={}", escape(value.as_deref()?))));
        let search = Search::parse(&format!("order=oldest&status={}{}", status.join(","), given.collect::<String>()))?;
        Ok(Search { limit: self.limit, ..search })
    }

    /// Whether those are wanted that only commands came for.
    pub fn held(&self) -> Result<bool> {
        let held = self.status.iter().any(|s| s == HELD);
        if held && self.status.len() > 1 {
            return Err(Error::new(codes::USAGE, Fault::Configuration, "listing operations: `held` goes with no other status")
                .next("list them by themselves: --status held"));
        }
        Ok(held)
    }
}

/// A page of what is searched for, where the next one begins, and how many there are from here on.
pub(super) fn page(
    operations: &BTreeMap<OperationKey, Seen>,
    args: &ListArgs,
    now: WallTime,
) -> Result<(Vec<Row>, Option<Cursor>, usize)> {
    let (search, held) = (args.search()?, args.held()?);
    let fits = |key: &OperationKey, seen: &Seen| {
        let listed = Listed::of(key, seen);
        (search.fits(&listed, now) && (!held || listed.status.is_none())).then_some(listed)
    };
    let mut found: Vec<Listed> = operations.iter().filter_map(|(key, seen)| fits(key, seen)).collect();
    let exact = |l: &Listed| search.text.as_deref() == Some(l.key.operation.as_str());
    if search.cursor.is_none() && found.iter().any(exact) {
        found.retain(exact);
    }
    let mut places: Vec<(Cursor, Listed)> = found.into_iter().map(|l| (place(&l), l)).collect();
    places.sort_by_key(|(at, l)| (at.changed, at.row, l.key.clone()));
    places.retain(|(at, _)| search.cursor.is_none_or(|after| (at.changed, at.row) > (after.changed, after.row)));
    let left = places.len();
    places.truncate(search.limit);
    let next = places.last().filter(|_| places.len() < left).map(|(at, _)| *at);
    Ok((places.iter().map(|(_, l)| Row::from(l)).collect(), next, left))
}

/// The place of an operation in a list, the same whatever else is listed: a cursor outlives the command that printed it.
fn place(l: &Listed) -> Cursor {
    let name = format!("{}\u{1f}{}\u{1f}{}", l.key.tenant, l.key.operation, l.key.step);
    let hash = Sha256::digest(name.as_bytes());
    Cursor { changed: WallTime(l.changed_at.0.max(0)), row: u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) }
}

/// Prints a page, and where the next one begins.
pub(super) fn print(rows: &[Row], next: Option<&str>, all: Option<usize>, now: WallTime, format: Format) {
    if format == Format::Table {
        println!("{:<28} {:<12} {:<20} {:>4} {:>12}  why", "operation", "tenant", "status", "ver", "since");
    }
    for row in rows {
        match format {
            Format::Table => println!(
                "{:<28} {:<12} {} {:>4} {:>12}  {}{}{}",
                row.operation,
                row.tenant,
                toned(&format!("{:<20}", row.status), tone_of(&row.status)),
                row.version,
                show_duration(now.since(WallTime(row.changed_at))),
                if row.proposal { "[model call] " } else { "" },
                row.code.as_ref().map(|c| format!("{c} ")).unwrap_or_default(),
                row.detail.as_deref().unwrap_or_default()
            ),
            Format::Json => println!("{}", line(row)),
        }
    }
    let Some(next) = next else { return };
    match format {
        Format::Table => {
            let of = all.map(|all| format!(" of {all}")).unwrap_or_default();
            eprintln!("{}{of} shown; --after {next} shows more", rows.len());
        }
        Format::Json => println!("{}", json!({ "schema": "readback.page/1", "next": next })),
    }
}

/// One operation as a line of a list.
pub(super) fn line(row: &Row) -> Value {
    let mut line = json!({ "schema": "readback.operation/1" });
    if let (Value::Object(to), Ok(Value::Object(members))) = (&mut line, serde_json::to_value(row)) {
        to.extend(members);
    }
    line
}

/// The same of what somebody follows.
pub fn line_of(key: &OperationKey, seen: &Seen) -> Value {
    line(&Row::from(&Listed::of(key, seen)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::views::Half;
    use crate::console::index::{Index, Place};
    use crate::effects::{LedgerRecord, Phase};
    use crate::intents::Flag;

    #[derive(Debug, clap::Parser)]
    struct Given {
        #[command(flatten)]
        args: ListArgs,
    }

    fn given(more: &[&str]) -> ListArgs {
        <Given as clap::Parser>::try_parse_from([&["list"], more].concat()).unwrap_or_else(|e| panic!("{e}")).args
    }

    /// Seven operations at two targets, three of them in the same moment.
    fn ledgers() -> Vec<(OperationKey, Seen)> {
        let ledger = |n: i64| {
            let key = OperationKey { tenant: "acme".into(), operation: format!("op-{n}").as_str().into(), step: "ask".into() };
            let mut l = LedgerRecord::held(key.clone(), WallTime(9_000));
            (l.phase, l.unknown_since, l.resource) =
                (Phase::Unknown, Some(WallTime(100 * (n / 3))), format!("order/{n}").as_str().into());
            (l.contract, l.call) = (if n % 2 == 0 { "orders" } else { "mail" }.into(), "create".into());
            l.flags = if n == 4 { vec![Flag::Contradiction] } else { Vec::new() };
            (key, Seen { record: None, ledger: Some(l) })
        };
        (1..=7).map(ledger).collect()
    }

    fn names(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|r| r.operation.clone()).collect()
    }

    /// If this broke, the same filter would find one thing at the console and another on the command line.
    #[test]
    fn a_filter_finds_here_what_it_finds_at_the_console() {
        let (all, now) = (ledgers(), WallTime(1_000));
        let mut index = Index::default();
        for (n, (key, seen)) in all.iter().enumerate() {
            index.put(key, Half::Ledger, seen, Place { partition: 0, offset: n as i64 });
        }
        let operations: BTreeMap<_, _> = all.into_iter().collect();
        for flags in [
            &[][..],
            &["--target", "orders#create"],
            &["--resource", "order/3"],
            &["--step", "ask", "--tenant", "acme"],
            &["--step", "other"],
            &["--search", "op-4"],
            &["--search", "op-"],
            &["--search", "order/5"],
            &["--flag", "contradiction"],
            &["--status", "unknown,parked"],
            &["--status", "parked"],
            &["--longer-than", "850ms"],
        ] {
            let args = given(flags);
            let (rows, ..) = page(&operations, &args, now).expect("finds");
            let there = index.page(&args.search().expect("reads"), now);
            let (mut here, mut there) = (names(&rows), there.rows.iter().map(|l| l.key.operation.to_string()).collect::<Vec<_>>());
            here.sort();
            there.sort();
            assert_eq!(here, there, "{flags:?}");
        }
        let (rows, ..) = page(&operations, &given(&["--flag", "contradiction"]), now).expect("finds");
        let told = line(&rows[0]);
        assert_eq!(
            (&told["target"], &told["resource"], &told["step"]),
            (&json!("orders#create"), &json!("order/4"), &json!("ask"))
        );
        assert_eq!((&told["schema"], &told["flags"]), (&json!("readback.operation/1"), &json!(["contradiction"])));
    }

    /// If this broke, whoever goes through a long list would miss operations that changed in one moment, or see them twice.
    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let operations: BTreeMap<_, _> = ledgers().into_iter().collect();
        let (mut found, mut after) = (Vec::new(), None::<String>);
        for _ in 0..4 {
            let mut flags = vec!["--limit", "2"];
            flags.extend(after.as_deref().map(|a| ["--after", a]).into_iter().flatten());
            let (rows, next, left) = page(&operations, &given(&flags), WallTime(1_000)).expect("finds");
            assert_eq!(left, 7 - found.len());
            found.extend(names(&rows));
            after = next.map(|c| c.text());
        }
        assert_eq!((found.len(), after), (7, None));
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 7);
    }

    /// If this broke, a place that somebody mistyped would begin the list anew; or `held` would hide the others.
    #[test]
    fn what_can_not_be_meant_is_refused() {
        let operations = BTreeMap::new();
        let code = |flags: &[&str]| page(&operations, &given(flags), WallTime(1_000)).map(|_| ()).expect_err("is refused").code;
        assert_eq!(code(&["--after", "op-7"]), codes::BAD_VALUE);
        assert_eq!(code(&["--status", "held,parked"]), codes::USAGE);
    }
}
