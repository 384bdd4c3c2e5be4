//! `/metrics`, `/health/live`, `/health/ready`; `/stores` stands beside.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};

use crate::error::{Error, Fault, Result, codes};

use super::stores::{self, StoresSlot};
use super::{Health, Probe, listen};

/// The listener of one process.
pub struct AdminServer {
    /// Where it listens; the real port where 0 was asked for.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    registry: Registry,
    health: Arc<Health>,
}

impl AdminServer {
    /// Starts listening; queries of stores are answered where a slot is given, and what `more` routes. A taken port names itself and
    /// the setting (C121).
    pub async fn start(
        listen: &str,
        registry: Registry,
        health: Arc<Health>,
        stores: Option<StoresSlot>,
        more: axum::Router,
    ) -> Result<AdminServer> {
        let refused = |e: std::io::Error| {
            Error::new(codes::BAD_VALUE, Fault::Configuration, format!("listening on {listen} for metrics and health"))
                .because(e)
                .next("set admin.listen to a free address, or to \"\" for none")
        };
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let app = axum::Router::new()
            .route("/metrics", get(metrics))
            .route("/health/live", get(|State(s): State<Shared>| async move { probe(s.health.is_live()) }))
            .route("/health/ready", get(|State(s): State<Shared>| async move { probe(s.health.is_ready()) }))
            .with_state(Shared { registry, health })
            .merge(stores.map(stores::router).unwrap_or_default())
            .merge(more);
        let task = tokio::spawn(listen::serve(listener, app, listen::HEAD));
        Ok(AdminServer { address, task })
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn metrics(State(s): State<Shared>) -> Response {
    let encoder = TextEncoder::new();
    let mut body = Vec::new();
    match encoder.encode(&s.registry.gather(), &mut body) {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], body).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, format!("gathering metrics: {e}\n")).into_response(),
    }
}

fn probe(probe: Probe) -> Response {
    match probe {
        Probe::Ok => (StatusCode::OK, "ok\n").into_response(),
        Probe::No(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// C121: a taken port would leave the process running blind.
    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = AdminServer::start("127.0.0.1:0", Registry::new(), Arc::default(), None, axum::Router::new()).await.unwrap();
        let Err(e) =
            AdminServer::start(&first.address.to_string(), Registry::new(), Arc::default(), None, axum::Router::new()).await
        else {
            panic!("the second listener must be refused")
        };
        assert!(e.to_string().contains(&first.address.to_string()), "{e}");
        assert_eq!(e.fault.exit_code(), 2);
    }
}
