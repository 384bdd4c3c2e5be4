//! The signature that an attempt carries over its time and its content. Made when it leaves, so that its secret stands in no record.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::compiled::{Part, SignRules};
use super::lint::{at, refuse};
use super::model::Call;
use super::read::{header_name, word};
use super::shape;
use crate::config::yaml::{Diagnostics, Fields, Node};
use crate::error::{Result, codes};
use crate::ids::WireKey;
use crate::intents::{RenderedRequest, hex};

/// Reads `fence.age.sign`.
pub(super) fn sign(node: &Node, d: &mut Diagnostics) -> Option<SignRules> {
    let f = shape::FENCE_SIGN.read(node, d)?;
    let header = f.get("header").and_then(|n| header_name(&n.text(d)?, n, d));
    let over = f.get("over").and_then(|n| match parts(&n.text(d)?) {
        Ok(parts) => Some(parts),
        Err(why) => {
            d.error(codes::BAD_TEMPLATE, &n.at, why).note("known here: stamp, key, method, path, body");
            None
        }
    });
    let base64 = word(&f, "encoding", &[("hex", false), ("base64", true)], false, d);
    let prefix = f.text("prefix", d).unwrap_or_default();
    let secret = f.get("secret").and_then(|n| n.secret(d));
    Some(SignRules { header: header?, prefix, base64, over: over?, secret: secret? })
}

fn parts(text: &str) -> std::result::Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').ok_or("`{` without its `}`")?;
        parts.push(Part::Text(before.to_owned()));
        parts.push(match name {
            "stamp" => Part::Stamp,
            "key" => Part::Key,
            "method" => Part::Method,
            "path" => Part::Path,
            "body" => Part::Body,
            other => return Err(format!("`{{{other}}}` can't be signed")),
        });
        rest = after;
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// A signature that leaves out what it is for.
pub(super) fn lint(call: &Call, f: &Fields<'_>, d: &mut Diagnostics) {
    let Some(sign) = &call.compiled.sign else { return };
    let site = at(f, "fence");
    let mut needs = |part: Part, why: &str| {
        if !sign.over.contains(&part) {
            refuse(d, site, "a signature that does not cover the whole", why);
        }
    };
    needs(Part::Stamp, "an old request could be given a new time: sign {stamp}");
    if call.compiled.request.json.is_some() {
        needs(Part::Body, "the signature of one body would do for another: sign {body}");
    }
}

impl Call {
    /// The header with the signature of an attempt that carries this time, where the contract has one; the secret is read now.
    ///
    /// # Errors
    /// Where the secret can't be read.
    pub fn signature(&self, stamp: &str, key: &WireKey, request: &RenderedRequest) -> Result<Option<(String, String)>> {
        let Some(sign) = &self.compiled.sign else { return Ok(None) };
        let secret = sign.secret.resolve()?;
        let mut mac = match Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) {
            Ok(mac) => mac,
            Err(_) => unreachable!("HMAC takes keys of any length"),
        };
        for part in &sign.over {
            match part {
                Part::Text(text) => mac.update(text.as_bytes()),
                Part::Stamp => mac.update(stamp.as_bytes()),
                Part::Key => mac.update(key.as_str().as_bytes()),
                Part::Method => mac.update(request.method.as_bytes()),
                Part::Path if request.query.is_empty() => mac.update(request.path.as_bytes()),
                Part::Path => mac.update(format!("{}?{}", request.path, request.query).as_bytes()),
                Part::Body => mac.update(request.body.as_deref().unwrap_or_default()),
            }
        }
        let made = mac.finalize().into_bytes();
        let text = if sign.base64 { STANDARD.encode(made) } else { hex(&made) };
        Ok(Some((sign.header.clone(), format!("{}{text}", sign.prefix))))
    }
}
