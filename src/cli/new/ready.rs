//! The contracts that come with the program, each with a call that its API's documents would answer so.

use serde_json::{Value, json};

/// A ready contract of `topology/contracts`.
pub(super) struct Ready {
    /// Its name, and its file's.
    pub name: &'static str,
    /// The call that it declares.
    pub call: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// What becomes of a lost answer.
    pub lost: &'static str,
    /// Whether it moves money: then its policy names who may, else who may not.
    pub money: bool,
    /// The file.
    text: &'static str,
    /// Parameters as the contract takes them.
    pub parameters: fn() -> Value,
    /// How the API takes a first call.
    pub taken: fn() -> (u16, Value),
    /// How a lost answer becomes known.
    pub known: Known,
}

/// How it becomes known what a lost answer said.
pub(super) enum Known {
    /// The same key is sent again, and this is said.
    Again(fn() -> (u16, Value)),
    /// It is read back; `{key}` stands for the key.
    List(fn() -> Value),
    /// It does not: a person looks.
    Person,
}

impl Ready {
    /// The file as it is written beside a topology: the editor's line names a schema that is not there.
    pub fn contract(&self) -> String {
        self.text.lines().filter(|l| !l.starts_with("# yaml-language-server:")).map(|l| format!("{l}\n")).collect()
    }

    /// The environment variables that it names.
    pub fn variables(&self) -> Vec<&'static str> {
        self.text.match_indices("{ env: ").filter_map(|(at, m)| self.text[at + m.len()..].split(' ').next()).collect()
    }
}

/// The contract of this name.
pub(super) fn find(name: &str) -> Option<&'static Ready> {
    ALL.iter().find(|r| r.name == name)
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/topology/contracts/", $name, ".yaml"))
    };
}

fn mail() -> Value {
    json!({ "from": "shop@example.org", "to": "kim@example.org", "subject": "Your order", "html": "<p>It is on its way.</p>" })
}

/// All of them, mail first.
pub(super) const ALL: &[Ready] = &[
    Ready {
        name: "resend",
        call: "send",
        about: "mail by Resend",
        lost: "is sent again under its key, for 24 hours",
        money: false,
        text: file!("resend"),
        parameters: mail,
        taken: || (200, json!({ "id": "m-1" })),
        known: Known::Again(|| (200, json!({ "id": "m-2" }))),
    },
    Ready {
        name: "lettermint",
        call: "send",
        about: "mail by Lettermint",
        lost: "is sent again under its key, for 24 hours",
        money: false,
        text: file!("lettermint"),
        parameters: || json!({ "from": "shop@example.org", "to": "kim@example.org", "subject": "Your order", "text": "It is on its way." }),
        taken: || (202, json!({ "message_id": "m-1" })),
        known: Known::Again(|| (202, json!({ "message_id": "m-2" }))),
    },
    Ready {
        name: "emailit",
        call: "send",
        about: "mail by Emailit",
        lost: "is sent again under its key, for 24 hours",
        money: false,
        text: file!("emailit"),
        parameters: mail,
        taken: || (201, json!({ "id": "m-1" })),
        known: Known::Again(|| (201, json!({ "id": "m-2" }))),
    },
    Ready {
        name: "azure-email",
        call: "send",
        about: "mail by Azure Communication Services",
        lost: "is read back; sent anew when absent after five minutes",
        money: false,
        text: file!("azure-email"),
        parameters: || json!({ "from": "shop@example.org", "to": "kim@example.org", "subject": "Your order", "text": "It is on its way." }),
        taken: || (202, json!({ "id": "m-1", "status": "Running" })),
        known: Known::List(|| json!({ "id": "{key}", "status": "Succeeded" })),
    },
    Ready {
        name: "brevo",
        call: "send",
        about: "mail by Brevo",
        lost: "is asked once more; a known key is an error there, and a person looks",
        money: false,
        text: file!("brevo"),
        parameters: mail,
        taken: || (201, json!({ "messageId": "m-1" })),
        known: Known::Again(|| (400, json!({ "code": "duplicate_parameter" }))),
    },
    Ready {
        name: "telnyx",
        call: "send",
        about: "text messages by Telnyx",
        lost: "is sent again under its key, for 12 hours",
        money: false,
        text: file!("telnyx"),
        parameters: || json!({ "from": "+15550001", "to": "+15550002", "text": "It is on its way." }),
        taken: || (200, json!({ "data": { "id": "m-1" } })),
        known: Known::Again(|| (200, json!({ "data": { "id": "m-2" } }))),
    },
    Ready {
        name: "checkout",
        call: "pay",
        about: "payments by Checkout.com",
        lost: "is sent again under its key, for 24 hours",
        money: true,
        text: file!("checkout"),
        parameters: || json!({ "token": "tok_1", "amount": 1000, "currency": "EUR", "reference": "order-1" }),
        taken: || (201, json!({ "id": "pay_1", "approved": true })),
        known: Known::Again(|| (201, json!({ "id": "pay_2", "approved": true }))),
    },
    Ready {
        name: "adyen",
        call: "pay",
        about: "payments by Adyen",
        lost: "is sent again under its key, for 7 days",
        money: true,
        text: file!("adyen"),
        parameters: || json!({ "account": "Shop", "method": { "type": "scheme" }, "amount": 1000, "currency": "EUR", "reference": "order-1" }),
        taken: || (200, json!({ "resultCode": "Authorised", "pspReference": "p-1" })),
        known: Known::Again(|| (200, json!({ "resultCode": "Authorised", "pspReference": "p-2" }))),
    },
    Ready {
        name: "paypal-orders",
        call: "create",
        about: "orders by PayPal",
        lost: "is sent again under its key, for 6 hours",
        money: true,
        text: file!("paypal-orders"),
        parameters: || json!({ "amount": "10.00", "currency": "EUR", "invoice": "order-1" }),
        taken: || (201, json!({ "id": "5O1" })),
        known: Known::Again(|| (200, json!({ "id": "5O2" }))),
    },
    Ready {
        name: "truelayer",
        call: "pay",
        about: "payments by TrueLayer",
        lost: "is sent again under its key, for 6 hours",
        money: true,
        text: file!("truelayer"),
        parameters: || json!({ "amount": 1000, "currency": "GBP", "method": { "type": "bank_transfer" }, "user": { "id": "u-1" } }),
        taken: || (201, json!({ "id": "p-1" })),
        known: Known::Again(|| (201, json!({ "id": "p-2" }))),
    },
    Ready {
        name: "qonto",
        call: "transfer",
        about: "transfers by Qonto",
        lost: "is sent again under its key, for 30 minutes",
        money: true,
        text: file!("qonto"),
        parameters: || json!({ "beneficiary": "b-1", "account": "FR7630001007941234567890185", "reference": "order-1", "amount": "10.00" }),
        taken: || (200, json!({ "external_transfer": { "id": "t-1" } })),
        known: Known::Again(|| (200, json!({ "external_transfer": { "id": "t-2" } }))),
    },
    Ready {
        name: "increase",
        call: "transfer",
        about: "transfers by Increase",
        lost: "is read back by its key, or sent again: one object per key",
        money: true,
        text: file!("increase"),
        parameters: || json!({ "account": "account_1", "to_account": "account_2", "amount": 1000, "description": "order-1" }),
        taken: || (200, json!({ "id": "t-1" })),
        known: Known::List(
            || json!({ "data": [{ "id": "t-1", "idempotency_key": "{key}", "amount": 1000 }], "next_cursor": null }),
        ),
    },
    Ready {
        name: "square",
        call: "pay",
        about: "payments by Square",
        lost: "goes to a person",
        money: true,
        text: file!("square"),
        parameters: || json!({ "source": "cnon:card-1", "amount": 1000, "currency": "USD" }),
        taken: || (200, json!({ "payment": { "id": "p-1" } })),
        known: Known::Person,
    },
    Ready {
        name: "github-comments",
        call: "comment",
        about: "comments on issues by GitHub",
        lost: "is read back by a marker in the text; absent goes to a person",
        money: false,
        text: file!("github-comments"),
        parameters: || json!({ "owner": "acme", "repo": "shop", "issue": 7, "text": "Done.", "since": "2026-11-20T00:00:00Z" }),
        taken: || (201, json!({ "id": 17 })),
        known: Known::List(|| json!([{ "id": 17, "body": "Done.\n\n<!-- {key} -->" }])),
    },
    Ready {
        name: "plain-webhook",
        call: "deliver",
        about: "any HTTP endpoint of which nothing is known",
        lost: "goes to a person",
        money: false,
        text: file!("plain-webhook"),
        parameters: || json!({ "event": "order.placed", "payload": { "order": "order-1" } }),
        taken: || (204, Value::Null),
        known: Known::Person,
    },
    Ready {
        name: "counted-webhook",
        call: "notify",
        about: "any HTTP endpoint where a second delivery does no harm",
        lost: "is sent again, and counted",
        money: false,
        text: file!("counted-webhook"),
        parameters: || json!({ "event": "order.placed", "payload": { "order": "order-1" } }),
        taken: || (204, Value::Null),
        known: Known::Again(|| (204, Value::Null)),
    },
];
