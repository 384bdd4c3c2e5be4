//! The envelope of a request, mapped from a record by expressions.

use serde_json::Value;

use crate::config::yaml::{Diagnostics, Node};
use crate::contract::Parameters;
use crate::dsl::{Defaults, Origin, RequestDraft, millis};
use crate::error::{Error, Fault, codes};
use crate::ids::{OperationId, StepName};
use crate::intents::Intake;
use crate::processor::ProcessorCx;
use crate::time::WallTime;

use super::expr::{CONTENT, Expr, RECORD};
use super::shape;
use super::value::Item;

/// The expressions of a `request:`.
#[derive(Clone)]
pub(super) struct RequestMap {
    operation_id: Expr,
    tenant: Expr,
    resource: Expr,
    deadline: Expr,
    requester: Option<Expr>,
    resource_version: Option<Expr>,
    action: Option<Expr>,
    permissions: Option<Expr>,
}

impl RequestMap {
    pub(super) fn read(node: &Node, step: &str, d: &mut Diagnostics) -> Option<RequestMap> {
        let fields = shape::REQUEST.read(node, d)?;
        let mut compile = |key: &str, known: &[&str]| {
            let place = format!("{step}.request.{key}");
            fields.get(key).map(|n| Expr::compile(n, known, &place, d))
        };
        // Identity and deadline come from the content: a copy of the record must be the same intent.
        let operation_id = compile("operation_id", CONTENT);
        let tenant = compile("tenant", CONTENT);
        let resource = compile("resource", CONTENT);
        let deadline = compile("deadline", CONTENT);
        let requester = compile("requester", RECORD);
        let resource_version = compile("resource_version", CONTENT);
        let action = compile("action", CONTENT);
        let permissions = compile("required_permissions", CONTENT);
        let missing = |given: &Option<Option<Expr>>| matches!(given, Some(None));
        if [&requester, &resource_version, &action, &permissions].into_iter().any(missing) {
            return None;
        }
        Some(RequestMap {
            operation_id: operation_id??,
            tenant: tenant??,
            resource: resource??,
            deadline: deadline??,
            requester: requester.flatten(),
            resource_version: resource_version.flatten(),
            action: action.flatten(),
            permissions: permissions.flatten(),
        })
    }

    /// The intake of a record; `parameters` become the request's input.
    pub(super) fn intake(
        &self,
        r: &Item,
        cx: &ProcessorCx<'_, '_>,
        step: &StepName,
        defaults: &Defaults,
        parameters: Parameters,
    ) -> Result<Intake, Error> {
        let origin = Origin::of(r, cx);
        let optional = |e: &Option<Expr>| e.as_ref().map(|e| e.text_of(r, cx)).transpose();
        let mut draft = RequestDraft::default()
            .tenant(self.tenant.text_of(r, cx)?)
            .resource(self.resource.text_of(r, cx)?)
            .deadline(time(&self.deadline.of_record(r, cx)?)?);
        if let Some(requester) = optional(&self.requester)? {
            draft = draft.requester(requester);
        }
        if let Some(version) = optional(&self.resource_version)? {
            draft = draft.resource_version(version);
        }
        if let Some(action) = optional(&self.action)? {
            draft = draft.action(action);
        }
        if let Some(permissions) = &self.permissions {
            draft = draft.required_permissions(texts(permissions.of_record(r, cx)?)?);
        }
        let id = OperationId::from(self.operation_id.text_of(r, cx)?);
        let request = draft.finish(id, parameters, defaults, &origin)?;
        Ok(Intake { request, step: step.clone(), ordering_key: None, origin: origin.text })
    }
}

/// RFC 3339 text (what a CEL timestamp becomes) or milliseconds.
fn time(value: &Value) -> Result<WallTime, Error> {
    let ms = value.as_i64().or_else(|| value.as_str().and_then(millis));
    ms.map(WallTime).ok_or_else(|| {
        Error::new(
            codes::REQUEST_INVALID,
            Fault::Data,
            "a deadline that is no time: RFC 3339 text, a CEL timestamp or milliseconds",
        )
    })
}

fn texts(value: Value) -> Result<Vec<String>, Error> {
    serde_json::from_value(value)
        .map_err(|_| Error::new(codes::REQUEST_INVALID, Fault::Data, "required_permissions that are no list of texts"))
}
