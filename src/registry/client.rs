//! The calls, over `schema_registry_converter`: with time-outs, retries, and each failure put into its class.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::error::Error as _;
use std::future::Future;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use schema_registry_converter::async_impl::schema_registry::{
    SrSettings, get_referenced_schema, get_schema_by_id, get_schema_by_subject_and_version, is_compatible_schema, perform_sr_call,
    post_schema,
};
use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::{RegisteredSchema, SchemaType, SrCall, SuppliedSchema};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::config::Secret;
use crate::error::{Error, Fault, Result, codes};
use crate::http::{self, Login, trusting};

use super::ask::Answered;
use super::{Patience, RegistryAuth, Trust, references};

/// Schemas that one schema may refer to, near and far.
const REFERENCES: usize = 64;

/// Largest answer to a question of our own, in bytes.
const MOST: usize = 64 << 10;

/// Why a call failed; never holds a URL or credential.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// 404: no such schema, subject or version.
    Missing,
    /// 401, 403, or something that is no registry (C019).
    Refused(String),
    /// No answer, 429 or 5xx: trying again helps.
    Passing(String),
    /// The registry, or we, can't take this schema.
    Unfit(String),
}

type Answer<T> = std::result::Result<T, Failure>;

/// Calls one registry.
pub(super) struct Client {
    /// Host and port, for messages.
    pub(super) host: String,
    url: String,
    auth: RegistryAuth,
    patience: Patience,
    trust: Trust,
    /// With a hash of the credential and the certificates that the settings were built with.
    settings: Mutex<Option<(u64, SrSettings)>>,
    runtime: Option<Runtime>,
}

impl Client {
    pub(super) fn new(url: &str, auth: RegistryAuth, trust: Trust, patience: Patience) -> Result<Self> {
        let bad = |why: &str| Error::new(codes::BAD_VALUE, Fault::Configuration, "reading the registry's URL").because(why);
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let host = rest.ok_or_else(|| bad("it must begin with http:// or https://"))?.split('/').next().unwrap_or_default();
        if host.contains('@') {
            return Err(bad("it must hold no credentials").next("give them under registry: as references"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("registry")
            .enable_all()
            .build()
            .map_err(|e| Error::new(codes::BUG, Fault::Bug, "starting the registry client").because(e))?;
        let (host, url) = (host.to_owned(), url.trim_end_matches('/').to_owned());
        Ok(Self { host, url, auth, trust, patience, settings: Mutex::new(None), runtime: Some(runtime) })
    }

    /// A schema's text, with those that it refers to put in.
    pub(super) fn by_id(&self, id: u32) -> Answer<String> {
        self.call(move |settings| async move { whole(get_schema_by_id(id, &settings).await?, &settings).await })
    }

    /// The newest version under a subject: its id and text.
    pub(super) fn newest(&self, subject: &str) -> Answer<(u32, String)> {
        let subject = subject.to_owned();
        self.call(move |settings| {
            let subject = subject.clone();
            async move {
                let schema = get_schema_by_subject_and_version(&settings, &subject, None).await?;
                Ok((schema.id, whole(schema, &settings).await?))
            }
        })
    }

    pub(super) fn register(&self, subject: &str, avsc: &str) -> Answer<u32> {
        let (subject, schema) = (subject.to_owned(), supplied(avsc));
        self.call(move |settings| {
            let (subject, schema) = (subject.clone(), schema.clone());
            async move { post_schema(&settings, subject, schema).await.map(|s| s.id) }
        })
    }

    pub(super) fn look_up(&self, subject: &str, avsc: &str) -> Answer<u32> {
        let (subject, body) = (subject.to_owned(), json!({ "schema": avsc, "schemaType": "AVRO" }).to_string());
        self.call(move |settings| {
            let (subject, body) = (subject.clone(), body.clone());
            async move {
                let found = perform_sr_call(&settings, SrCall::PostForVersion(&subject, &body)).await?;
                found.id.ok_or_else(|| SRCError::new("could not parse the answer: no id", None, false))
            }
        })
    }

    pub(super) fn compatible(&self, subject: &str, avsc: &str) -> Answer<bool> {
        let (subject, schema) = (subject.to_owned(), supplied(avsc));
        self.call(move |settings| {
            let (subject, schema) = (subject.clone(), schema.clone());
            async move { is_compatible_schema(&settings, subject, schema).await }
        })
    }

    /// Runs one call on the client's thread, again where its failure passes, and waits for the answer.
    fn call<T, F>(&self, make: impl Fn(SrSettings) -> F) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = std::result::Result<T, SRCError>> + Send + 'static,
    {
        let mut backoff = self.patience.backoff;
        for left in (0..self.patience.tries.max(1)).rev() {
            match self.once(make(self.settings()?)) {
                Err(Failure::Passing(why)) if left > 0 => {
                    tracing::debug!(host = %self.host, why, "the registry did not answer; asking again");
                    std::thread::sleep(backoff);
                    backoff *= 2;
                }
                Err(refused @ Failure::Refused(_)) => {
                    self.forget_credential();
                    return Err(refused);
                }
                other => return other,
            }
        }
        Err(Failure::Passing("no answer".into()))
    }

    /// Status and body of what is at a path: for calls that the library lacks.
    pub(super) fn get(&self, path: &str) -> Answer<(u16, Vec<u8>)> {
        let refused = |e: Error| Failure::Refused(e.to_string());
        let login = match &self.auth {
            RegistryAuth::None => Login::None,
            RegistryAuth::Basic { user, password } => {
                Login::Basic { user: user.clone(), password: password.resolve().map_err(refused)? }
            }
            RegistryAuth::Bearer(token) => Login::Bearer(token.resolve().map_err(refused)?),
        };
        let http = trusting(self.trust.ca.as_deref(), self.trust.identity.as_ref()).map_err(refused)?;
        let (from, limit) = (format!("{}{path}", self.url), self.patience.request);
        self.run(async move { http::get(http, &from, login, limit, MOST).await.map_err(unanswered) })
    }

    /// Makes a call on the client's own thread.
    pub(super) fn run<T: Send + 'static>(&self, call: impl Future<Output = Answer<T>> + Send + 'static) -> Answer<T> {
        let Some(runtime) = &self.runtime else { return Err(Failure::Passing("the client is closed".into())) };
        let (send, receive) = mpsc::channel();
        runtime.spawn(async move {
            // Whoever asked may have gone.
            let _ = send.send(call.await);
        });
        receive.recv().map_err(|_| Failure::Passing("the call was lost".into()))?
    }

    fn once<T: Send + 'static>(&self, call: impl Future<Output = std::result::Result<T, SRCError>> + Send + 'static) -> Answer<T> {
        self.run(async move { call.await.map_err(|e| classify(&e)) })
    }

    /// Makes a call on a thread of the client's own and hands its answer to `done` there.
    pub(super) fn aside<T: 'static>(self: &Arc<Self>, call: impl FnOnce(&Self) -> Answer<T> + Send + 'static, done: Answered<T>) {
        let Some(runtime) = &self.runtime else { return done(Err(Failure::Passing("the client is closed".into()))) };
        let this = Arc::clone(self);
        runtime.spawn_blocking(move || done(call(&this)));
    }

    /// Settings with credential and certificates as they are now: what is rotated needs no restart.
    fn settings(&self) -> Answer<SrSettings> {
        let refused = |e: Error| Failure::Refused(e.to_string());
        let secret = match &self.auth {
            RegistryAuth::None => None,
            RegistryAuth::Basic { password: secret, .. } | RegistryAuth::Bearer(secret) => Some(secret),
        };
        let credential = secret.map(|s| s.resolve()).transpose().map_err(refused)?;
        let credential = credential.as_ref().map_or("", Secret::expose);
        let with = self.trust.stamp(credential).map_err(refused)?;
        let mut kept = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, settings)) = &*kept
            && *known == with
        {
            return Ok(settings.clone());
        }
        let mut builder = SrSettings::new_builder(self.url.clone());
        builder.set_timeout(self.patience.request).no_proxy();
        match &self.auth {
            RegistryAuth::None => {}
            RegistryAuth::Basic { user, .. } => drop(builder.set_basic_authorization(user, Some(credential))),
            RegistryAuth::Bearer(_) => drop(builder.set_token_authorization(credential)),
        }
        let http = trusting(self.trust.ca.as_deref(), self.trust.identity.as_ref()).map_err(refused)?;
        let settings = builder.build_with(http).map_err(|e| Failure::Refused(format!("{}: {}", e.error, innermost(&e))))?;
        *kept = Some((with, settings.clone()));
        Ok(settings)
    }

    /// After a refusal: what a command said is asked for anew.
    fn forget_credential(&self) {
        if let RegistryAuth::Basic { password: secret, .. } | RegistryAuth::Bearer(secret) = &self.auth {
            secret.forget();
        }
    }
}

impl Trust {
    /// Of the credential and of every file's content.
    fn stamp(&self, credential: &str) -> Result<u64> {
        let mut hasher = DefaultHasher::new();
        credential.hash(&mut hasher);
        let ours = self.identity.iter().flat_map(|i| [&i.certificate, &i.key]);
        for path in self.ca.iter().chain(ours) {
            let content = std::fs::read(path).map_err(|e| {
                Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading {}", path.display())).because(e)
            })?;
            content.hash(&mut hasher);
        }
        Ok(hasher.finish())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Dropping a runtime waits, which panics on an async thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An Avro schema's text with the definitions of all that it refers to.
async fn whole(schema: RegisteredSchema, settings: &SrSettings) -> std::result::Result<String, SRCError> {
    if schema.schema_type != SchemaType::Avro {
        return Err(SRCError::new("not an Avro schema", None, false));
    }
    let mut named = BTreeMap::new();
    let mut open = schema.references;
    while let Some(reference) = open.pop() {
        if named.len() >= REFERENCES {
            return Err(SRCError::new("too many references", None, false));
        }
        if named.contains_key(&reference.name) {
            continue;
        }
        let found = get_referenced_schema(settings, &reference).await?;
        named.insert(reference.name, found.schema);
        open.extend(found.references);
    }
    Ok(if named.is_empty() { schema.schema } else { references::inline(&schema.schema, &named) })
}

fn supplied(avsc: &str) -> SuppliedSchema {
    SuppliedSchema::new(None, SchemaType::Avro, avsc.to_owned())
}

/// The class of a failure. The client library keeps the status in its message only.
fn classify(e: &SRCError) -> Failure {
    let status = e.error.split("with status ").nth(1).and_then(|s| s.get(..3)).and_then(|s| s.parse::<u16>().ok());
    let said = e.source().filter(|_| status.is_some()).map(|s| format!(" ({s})")).unwrap_or_default();
    match status {
        Some(404) => Failure::Missing,
        Some(status @ (401 | 403 | 407)) => Failure::Refused(format!("it refuses us with status {status}")),
        Some(status @ (409 | 422)) => Failure::Unfit(format!("status {status}{said}")),
        Some(status @ (408 | 429 | 500..)) => Failure::Passing(format!("status {status}")),
        Some(status) => Failure::Refused(format!("status {status}{said}")),
        None if e.error.starts_with("could not parse") => {
            Failure::Refused("it answers something that is no schema registry's answer, perhaps a login page".into())
        }
        None if e.retriable => unanswered(innermost(e)),
        None => Failure::Unfit(e.error.clone()),
    }
}

/// Why no answer came.
fn unanswered(why: String) -> Failure {
    // Of the certificate, theirs or ours: somebody has to mend it.
    match why.contains("ertificate") {
        true => Failure::Refused(why),
        false => Failure::Passing(why),
    }
}

/// The last cause: the outer ones may hold the URL (C118).
fn innermost(e: &SRCError) -> String {
    let mut cause = e.source();
    while let Some(deeper) = cause.and_then(|c| c.source()) {
        cause = Some(deeper);
    }
    cause
        .filter(|c| c.source().is_none())
        .map(ToString::to_string)
        .filter(|c| !c.contains("://"))
        .unwrap_or_else(|| "no answer".into())
}
