//! From parameters and key to the exact bytes of a request.

use hmac::{Hmac, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::compiled::RequestTemplate;
use super::template::{Place, Template, Values, percent};
use super::{Call, Carrier, KeyFormat, Parameters, params};
use crate::error::{Error, Fault, Result, codes};
use crate::ids::{OperationKey, WireKey};
use crate::intents::{Pair, RenderedRequest};

/// Names with a meaning of their own in templates and expressions.
pub(super) const KEY: &str = "key";
/// The page token of a readback.
pub(super) const PAGE: &str = "page";
/// The version of the resource that the requester saw.
pub(super) const RESOURCE_VERSION: &str = "resource_version";

/// What placeholders get.
struct Filling<'a> {
    parameters: &'a Parameters,
    key: Value,
    page: Option<Value>,
    version: Option<Value>,
}

impl Values for Filling<'_> {
    fn value(&self, name: &str) -> Option<&Value> {
        match name {
            KEY => Some(&self.key),
            PAGE => self.page.as_ref(),
            RESOURCE_VERSION => self.version.as_ref(),
            _ => self.parameters.0.get(name).filter(|v| !v.is_null()),
        }
    }
}

impl Call {
    /// The operation's key on the wire: a keyed hash over tenant, operation and step, in the declared format. The contract's
    /// version is not part of it: a redelivery after a version bump must hit the same key.
    pub fn wire_key(&self, secret: &[u8], operation: &OperationKey) -> WireKey {
        let mut mac = match Hmac::<Sha256>::new_from_slice(secret) {
            Ok(mac) => mac,
            Err(_) => unreachable!("HMAC takes keys of any length"),
        };
        for part in [operation.tenant.as_str(), operation.operation.as_str(), operation.step.as_str()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let hash: [u8; 32] = mac.finalize().into_bytes().into();
        key_text(self.key.format, &hash)
    }

    /// Whether `request` could be this call, by its method and path.
    pub fn could_be(&self, request: &RenderedRequest) -> bool {
        let own = &self.compiled.request;
        own.method == request.method && own.path.could_be(&request.path)
    }

    /// Whether `request` could be this call's readback, by its method and path; and the key that its query asks for, if that
    /// is where the key stands.
    pub fn could_be_readback(&self, request: &RenderedRequest) -> Option<Option<String>> {
        let own = &self.compiled.readback.as_ref()?.request;
        if own.method != request.method || !own.path.could_be(&request.path) {
            return None;
        }
        let name = own.query.iter().find(|(_, t)| t.only() == Some(KEY)).map(|(name, _)| name.as_str());
        let value = |name: &str| request.query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
        Some(name.and_then(value).map(str::to_owned))
    }

    /// Whether `parameters` are what the contract declares; all that is wrong, without values.
    pub fn check(&self, parameters: &Parameters) -> std::result::Result<(), Vec<String>> {
        params::check(&self.compiled.parameters, parameters)
    }

    /// The value that somebody typed for a parameter: what the contract calls text stays text, else it is JSON where it reads as JSON.
    pub fn typed(&self, name: &str, word: &str) -> serde_json::Value {
        match self.compiled.parameters.get(name) {
            Some(parameter) => parameter.typed(word),
            None => word.into(),
        }
    }

    /// The exact request; `version` is the version of the resource that the requester saw.
    ///
    /// # Errors
    /// Where a parameter is not as declared or can't stand where the template puts it, or the version is needed and missing.
    pub fn render(&self, parameters: &Parameters, key: &WireKey, version: Option<&str>) -> Result<RenderedRequest> {
        self.check(parameters).map_err(|wrong| self.refused(wrong.join("; ")))?;
        if version.is_none() && (self.precondition.is_some() || self.sends_version()) {
            return Err(self.refused("the request names no resource_version, and the call holds for one version only".to_owned()));
        }
        let mut request = self.fill(&self.compiled.request, parameters, key, None, version)?;
        if let Carrier::Header(name) = &self.key.carrier {
            request.headers.push(Pair { name: name.clone(), value: key.to_string() });
        }
        Ok(request)
    }

    /// The readback's request; `page` is the token that [`super::Verdict::NextPage`] gave.
    pub fn render_readback(&self, parameters: &Parameters, key: &WireKey, page: Option<&str>) -> Result<RenderedRequest> {
        match &self.compiled.readback {
            Some(rules) => self.fill(&rules.request, parameters, key, page, None),
            None => Err(Error::new(codes::BUG, Fault::Bug, format!("reading back {}, which declares no readback", self.name))),
        }
    }

    /// The link that shows a person the effect.
    pub fn look_at(&self, parameters: &Parameters, key: &WireKey) -> Option<String> {
        let filling = Filling { parameters, key: key.as_str().into(), page: None, version: None };
        self.compiled.look_at.as_ref()?.fill(&filling, Place::Link).ok().flatten()
    }

    pub(super) fn fill(
        &self,
        template: &RequestTemplate,
        parameters: &Parameters,
        key: &WireKey,
        page: Option<&str>,
        version: Option<&str>,
    ) -> Result<RenderedRequest> {
        let filling =
            Filling { parameters, key: key.as_str().into(), page: page.map(Value::from), version: version.map(Value::from) };
        filled(template, &filling).map_err(|why| self.refused(why))
    }

    fn refused(&self, why: String) -> Error {
        Error::new(codes::REQUEST_INVALID, Fault::Data, format!("rendering {}", self.name)).because(why)
    }
}

/// A key in its declared shape.
pub(super) fn key_text(format: KeyFormat, hash: &[u8; 32]) -> WireKey {
    match format {
        KeyFormat::Uuid => {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hash[..16]);
            WireKey::from(uuid::Builder::from_random_bytes(bytes).into_uuid().to_string())
        }
        KeyFormat::Hex(length) => WireKey::from(crate::intents::hex(hash)[..length.clamp(1, 64)].to_owned()),
    }
}

fn filled(template: &RequestTemplate, values: &Filling<'_>) -> std::result::Result<RenderedRequest, String> {
    let fill = |t: &Template, place| t.fill(values, place);
    let path = fill(&template.path, Place::Path)?.ok_or("a parameter of the path is missing")?;
    let mut query = String::new();
    for (name, t) in &template.query {
        if let Some(value) = fill(t, Place::Query)? {
            query.push_str(if query.is_empty() { "" } else { "&" });
            percent(name, &mut query);
            query.push('=');
            query.push_str(&value);
        }
    }
    let mut headers = Vec::new();
    for (name, t) in &template.headers {
        if let Some(value) = fill(t, Place::Header)? {
            headers.push(Pair { name: name.clone(), value });
        }
    }
    let body = match &template.json {
        None => None,
        Some(json) => {
            if !headers.iter().any(|h| h.name.eq_ignore_ascii_case("content-type")) {
                headers.push(Pair { name: "content-type".into(), value: "application/json".into() });
            }
            json.fill(values)?.map(|v| v.to_string().into_bytes())
        }
    };
    Ok(RenderedRequest { method: template.method.clone(), path, query, headers, body })
}
