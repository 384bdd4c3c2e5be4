//! What a plain contract makes of answers.

use crate::contract::{Parameters, Undo};
use crate::effects::Verdict;
use crate::effects::config::{Classified, Judge, Judged};
use crate::error::Error;
use crate::http::Answer;
use crate::ids::WireKey;
use crate::intents::{AnswerClass, Cost, RenderedRequest};
use crate::time::WallTime;

use super::bench::sec;

/// Reads answers by status, and lists by a small JSON body: `{"ours": 1, "other": false, "next": null}`.
/// Signs where its target looks at the age of a request.
pub struct Plain {
    pub signs: bool,
}

impl Judge for Plain {
    fn classify(&self, a: &Answer, at: WallTime) -> Classified {
        let class = match a.status {
            200 | 201 => AnswerClass::Applied,
            202 => AnswerClass::InProgress,
            409 => AnswerClass::KeyConflict,
            412 => AnswerClass::PreconditionFailed,
            422 => AnswerClass::Rejected,
            429 => AnswerClass::RetryLater,
            503 => AnswerClass::NotApplied,
            _ => AnswerClass::Unknown,
        };
        let after = a.headers.iter().find(|(n, _)| n == "retry-after").map(|(_, v)| v.parse().unwrap());
        let text = String::from_utf8(a.body.to_vec()).unwrap();
        Classified {
            class,
            reference: Some(text),
            retry_at: after.map(|s| at.plus(sec(s))),
            cost: Cost { tool_calls: 1, ..Cost::default() },
        }
    }
    fn readback(&self, _: &Parameters, key: &WireKey, page: Option<&str>) -> Result<RenderedRequest, Error> {
        let query = format!("ref={key}&page={}", page.unwrap_or("1"));
        Ok(RenderedRequest { method: "GET".into(), path: "/orders".into(), query, ..Default::default() })
    }
    fn version_request(&self, _: &Parameters) -> Result<RenderedRequest, Error> {
        Ok(RenderedRequest { method: "GET".into(), path: "/resource".into(), ..Default::default() })
    }
    fn version_in(&self, a: &Answer) -> Result<Option<String>, String> {
        match a.status {
            200 => Ok(Some(String::from_utf8(a.body.to_vec()).unwrap())),
            404 => Ok(None),
            status => Err(format!("status {status}")),
        }
    }
    fn undo(&self, _: &Parameters, key: &WireKey, reference: Option<&str>) -> Result<Undo, String> {
        let order = reference.ok_or("no reference")?;
        let request = RenderedRequest { method: "POST".into(), path: format!("/undo/{order}"), ..Default::default() };
        Ok(Undo {
            call: "cancel".into(),
            parameters: Parameters::default(),
            wire_key: WireKey::from(format!("undo-{key}")),
            request,
            look_at: None,
            deadline: sec(600),
        })
    }
    fn stamp(&self, at: WallTime) -> Option<(String, String)> {
        self.signs.then(|| ("x-sent-at".to_owned(), at.0.to_string()))
    }
    fn signature(&self, stamp: &str, key: &WireKey, _: &RenderedRequest) -> Result<Option<(String, String)>, Error> {
        Ok(Some(("x-signature".to_owned(), format!("signed {stamp} {key}"))))
    }
    fn judge(&self, pages: &[Answer], _: &Parameters, _: &WireKey) -> Judged {
        let mut ours = 0;
        for p in pages {
            let Ok(v) = serde_json::from_slice::<serde_json::Value>(&p.body) else {
                return Judged::Done(Verdict::Incomplete(format!("status {}", p.status)));
            };
            ours += v["ours"].as_i64().unwrap_or(0);
            if v["other"] == true {
                return Judged::Done(Verdict::OtherContent);
            }
            if let Some(next) = v["next"].as_str().filter(|_| std::ptr::eq(p, pages.last().unwrap())) {
                return Judged::NextPage(next.to_owned());
            }
        }
        Judged::Done(match ours {
            0 => Verdict::Absent,
            1 => Verdict::One { reference: Some("order-7".into()) },
            _ => Verdict::Two,
        })
    }
}
