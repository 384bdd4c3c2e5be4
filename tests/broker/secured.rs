//! What secured stories need: certificates of our own, an issuer of tokens over TLS, a front of the registry that asks for a
//! certificate and a token, and records as they were committed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use readback::demo::stack::Secure;
use readback::ids::{TopicName, Tp};
use readback::intents::headers;
use readback::kafka::{Cluster as _, Isolation};
use readback::offset::NextOffset;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::{cluster_at, stack, until};

pub fn secure() -> &'static Secure {
    stack().secure().expect("this test needs a local stack: unset READBACK_BROKERS")
}

/// A text that anybody may hold and change.
pub type Word = Arc<Mutex<String>>;

pub fn word(text: &str) -> Word {
    Arc::new(Mutex::new(text.to_owned()))
}

pub fn say(word: &Word, text: &str) {
    text.clone_into(&mut word.lock().expect("no panic"));
}

fn openssl(dir: &Path, args: &[&str]) -> Vec<u8> {
    let out = Command::new("openssl").current_dir(dir).args(args).output().expect("openssl runs");
    assert!(out.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// A certificate of the stack's authority for this name, with its key: `<name>.pem` and `<name>.key` in `dir`.
pub fn certificate(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let tls = &secure().dir;
    let (key, csr, pem) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.pem"));
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    openssl(dir, &[&["req"][..], &curve, &["-keyout", &key, "-out", &csr, "-subj", &format!("/CN={name}")]].concat());
    let (ca, ca_key) = (tls.join("ca.pem").display().to_string(), tls.join("ca.key").display().to_string());
    openssl(dir, &["x509", "-req", "-in", &csr, "-CA", &ca, "-CAkey", &ca_key, "-set_serial", "7", "-days", "30", "-out", &pem]);
    (dir.join(pem), dir.join(key))
}

/// A file that takes the place of another at once, as a mounted secret does.
pub fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("writes");
    std::fs::rename(&new, path).expect("renames");
}

/// A server with the stack's certificate for `localhost`; asks for a certificate where `asks` says so. Each connection is one request,
/// which `answer` gets whole.
fn serve(asks: bool, answer: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static) -> u16 {
    let tls = &secure().dir;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().expect("versions");
    let builder = match asks {
        true => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(tls.join("ca.pem")).expect("PEM")).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
            builder.with_client_cert_verifier(verifier)
        }
        false => builder.with_no_client_auth(),
    };
    let chain = vec![CertificateDer::from_pem_file(tls.join("server.pem")).expect("PEM")];
    let key = PrivateKeyDer::from_pem_file(tls.join("server.key")).expect("a key");
    let config = Arc::new(builder.with_single_cert(chain, key).expect("a pair"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let (connection, answer) = (ServerConnection::new(config.clone()).expect("a connection"), answer.clone());
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(connection, tcp);
                if let Some(request) = request(&mut stream) {
                    let _ = stream.write_all(&answer(&request));
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            });
        }
    });
    port
}

/// A whole request: its head, and as much body as that says.
fn request(from: &mut impl Read) -> Option<Vec<u8>> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(request);
            }
        }
        match from.read(&mut buffer) {
            Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    format!("{head}Connection: close\r\n\r\n{body}").into_bytes()
}

/// Gives tokens for `audience` that hold for `life`, to whoever knows the secret of now.
pub struct Issuer {
    pub url: String,
    pub secret: Word,
    pub given: Arc<Mutex<usize>>,
}

impl Issuer {
    pub fn start(audience: &'static str, life: Duration) -> Self {
        let (secret, given) = (word("first"), Arc::new(Mutex::new(0)));
        let (known, count) = (secret.clone(), given.clone());
        let port = serve(false, move |request| {
            let text = String::from_utf8_lossy(request).into_owned();
            let login = base64(format!("stage:{}", known.lock().expect("no panic")).as_bytes(), b"+/");
            let is_known =
                text.lines().any(|l| l.to_lowercase().starts_with("authorization:") && l.ends_with(&format!("Basic {login}")));
            if !is_known || !text.contains("grant_type=client_credentials") {
                return http("401 Unauthorized", r#"{"error":"invalid_client"}"#);
            }
            *count.lock().expect("no panic") += 1;
            let token = token(audience, life);
            http("200 OK", &format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{}}}"#, life.as_secs()))
        });
        Self { url: format!("https://localhost:{port}/token"), secret, given }
    }
}

/// A signed token as the broker's validator wants it.
fn token(audience: &str, life: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let head = base64_url(br#"{"alg":"RS256","kid":"stack","typ":"JWT"}"#);
    let claims = format!(
        r#"{{"iss":"https://tokens.example","aud":"{audience}","sub":"stage","scope":"kafka","iat":{now},"exp":{}}}"#,
        now + life.as_secs()
    );
    let signed = format!("{head}.{}", base64_url(claims.as_bytes()));
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &signed).expect("writes");
    let signature = openssl(&secure().dir, &["dgst", "-sha256", "-sign", "token.key", &file.path().display().to_string()]);
    format!("{signed}.{}", base64_url(&signature))
}

fn base64_url(bytes: &[u8]) -> String {
    base64(bytes, b"-_").trim_end_matches('=').to_owned()
}

fn base64(bytes: &[u8], last: &[u8; 2]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |six: u32| LETTERS.get(six as usize).or(last.get((six as usize).wrapping_sub(62))).copied().expect("below 64");
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0, |all, b| (all << 8) | u32::from(*b)) << (8 * (3 - three.len()));
        (0..4).map(move |i| if i > three.len() { '=' } else { char::from(letter((bits >> (18 - 6 * i)) & 63)) }).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// The stack's registry behind TLS that asks for a certificate and for the bearer token of now.
pub struct Front {
    pub url: String,
    pub token: Word,
}

impl Front {
    pub fn start() -> Self {
        let registry = stack().registry().trim_start_matches("http://").to_owned();
        let (host, path) =
            registry.split_once('/').map_or((registry.clone(), String::new()), |(h, p)| (h.to_owned(), format!("/{p}")));
        let token = word("first");
        let known = token.clone();
        let port = serve(true, move |request| {
            let text = String::from_utf8_lossy(request).into_owned();
            let wanted = format!("authorization: bearer {}", known.lock().expect("no panic"));
            if !text.lines().any(|l| l.to_lowercase() == wanted) {
                return http("401 Unauthorized", "{}");
            }
            let mut to = TcpStream::connect(&host).expect("the registry answers");
            to.write_all(text.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()).expect("is sent");
            let mut answer = Vec::new();
            to.read_to_end(&mut answer).expect("an answer");
            answer
        });
        Self { url: format!("https://localhost:{port}{path}"), token }
    }
}

/// The ids of all results of an application that are committed.
pub fn results(app: &str) -> Vec<String> {
    let mut reader = cluster_at(stack().brokers()).reader(Isolation::Committed).expect("a reader");
    let topic = TopicName::from(format!("{app}.results"));
    let partitions = 4;
    (0..partitions)
        .flat_map(|p| {
            let tp = Tp::new(topic.clone(), p);
            let (_, end) = reader.ends(&tp, Isolation::Committed).expect("ends");
            reader.assign(&[(tp.clone(), NextOffset(0))]).expect("assign");
            let mut ids = Vec::new();
            until("the end", || {
                while let Some(record) = reader.poll(Duration::from_millis(50)).expect("reads") {
                    ids.push(record.headers.text(headers::CE_ID).expect("an id").to_owned());
                }
                reader.position(&tp).filter(|at| *at >= end)
            });
            ids
        })
        .collect()
}
