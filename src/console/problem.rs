//! Errors as answers: `application/problem+json` (RFC 9457) with our codes.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{Error, Fault, codes};

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// The page of the code.
    #[serde(rename = "type")]
    pub page: String,
    /// The code's name: `STALE_VERSION`.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was being done, and why it can't be.
    pub detail: String,
    /// `RB0709`; `readback explain RB0709` tells more.
    pub code: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The HTTP status of an error.
pub fn status(e: &Error) -> StatusCode {
    match e.code {
        codes::SIGN_IN_REQUIRED | codes::SIGN_IN_REFUSED => StatusCode::UNAUTHORIZED,
        codes::NOT_PERMITTED | codes::FORM_REFUSED => StatusCode::FORBIDDEN,
        codes::TOO_MANY_TRIES => StatusCode::TOO_MANY_REQUESTS,
        codes::UNKNOWN_OPERATION => StatusCode::NOT_FOUND,
        codes::STALE_VERSION => StatusCode::CONFLICT,
        codes::UNKNOWN_REFERENCE => StatusCode::NOT_FOUND,
        codes::USAGE | codes::BAD_VALUE => StatusCode::BAD_REQUEST,
        codes::FILE_UNREADABLE => StatusCode::INTERNAL_SERVER_ERROR,
        _ => match e.fault {
            Fault::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            Fault::Verdict | Fault::Data => StatusCode::UNPROCESSABLE_ENTITY,
            Fault::Stale => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// The page of all codes, where the runbooks of alerts stand, too.
const PAGE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/src/docs/errors.md");

/// A code's place there, as headings are linked to: `rb0709--stale_version`.
fn page(code: &str, title: &str) -> String {
    match title {
        "" => PAGE.to_owned(),
        title => format!("{PAGE}#{}--{}", code.to_ascii_lowercase(), title.to_ascii_lowercase()),
    }
}

/// An error in words, without its code.
pub fn words(e: &Error) -> String {
    let mut text = e.doing.clone();
    let mut cause = std::error::Error::source(e);
    while let Some(c) = cause {
        text += &format!(": {c}");
        cause = c.source();
    }
    text
}

impl Problem {
    /// What an error is to whoever asked.
    pub fn of(e: &Error) -> Self {
        Self::coded(status(e), &e.code.to_string(), words(e), e.next.clone())
    }

    /// A problem with a code that stands on a record.
    pub fn coded(status: StatusCode, code: &str, detail: String, next: Option<String>) -> Self {
        let title = codes::ALL.iter().find(|(c, _)| c.to_string() == code).map_or("", |(_, name)| name);
        Self { page: page(code, title), title: title.to_owned(), status: status.as_u16(), detail, code: code.to_owned(), next }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response
    }
}
