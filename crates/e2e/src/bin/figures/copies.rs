//! Copies of what an API server has stored, put where it keeps it. It tells of them as if it had taken them itself,
//! which would take longer the more services there are: for each address that it gives to one, it counts all others
//! twice.

use anyhow::{Context, Result, ensure};
use elasti_api::ElastiService;
use elasti_e2e::exchange;
use http::Request;
use http_body_util::Full;
use jiff::SignedDuration;
use k8s_openapi::{
    ByteString,
    api::{core::v1::Service, networking::v1::IPAddress},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use std::{collections::HashSet, net::Ipv4Addr};

/// Of a local cluster.
const ETCD: &str = "http://127.0.0.1:2379/v3/kv/txn";
/// Four objects each; etcd takes no more than 128 at once.
const AT_ONCE: usize = 30;
/// Where the API server takes addresses from that nobody asks for.
const ADDRESSES: [u8; 2] = [10, 96];

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// One object that is stored, and where.
struct Stored {
    folder: String,
    text: String,
    /// Whether it is called by the address of its service.
    is_address: bool,
}

/// What differs from copy to copy.
struct Marks {
    name: String,
    address: String,
    uids: Vec<String>,
}

/// Copies a service that nobody works on yet, with its target, ElastiService and address.
pub(crate) async fn make(
    client: &Client,
    namespace: &str,
    target: &ApiResource,
    first: &str,
    names: &[String],
) -> Result<()> {
    let services: Api<Service> = Api::all(client.clone());
    let service = Api::<Service>::namespaced(client.clone(), namespace)
        .get(first)
        .await?;
    let address = cluster_ip(&service).context("the first service has an address")?;
    let elasti_service = ApiResource::erase::<ElastiService>(&());
    let of = |resource: &ApiResource| format!("{}/{}/{namespace}", resource.group, resource.plural);
    let kinds = [
        (
            ApiResource::erase::<IPAddress>(&()),
            "ipaddresses".to_owned(),
        ),
        (
            ApiResource::erase::<Service>(&()),
            format!("services/specs/{namespace}"),
        ),
        (target.clone(), of(target)),
        (elasti_service.clone(), of(&elasti_service)),
    ];
    let (mut stored, mut uids) = (Vec::new(), Vec::new());
    for (resource, folder) in kinds {
        let is_address = folder == "ipaddresses";
        let (api, name): (Api<DynamicObject>, &str) = if is_address {
            (Api::all_with(client.clone(), &resource), &address)
        } else {
            (
                Api::namespaced_with(client.clone(), namespace, &resource),
                first,
            )
        };
        let mut object = api.get(name).await?;
        object.metadata.resource_version = None;
        // One that an API server sees before its service would soon be taken for leaked.
        if is_address && let Some(Time(created)) = &mut object.metadata.creation_timestamp {
            *created += HOUR;
        }
        uids.push(object.uid().context("it is stored")?);
        stored.push(Stored {
            folder,
            text: serde_json::to_string(&object)?,
            is_address,
        });
    }
    let origin = Marks {
        name: first.into(),
        address,
        uids,
    };
    let all = services.list(&ListParams::default()).await?;
    let taken: HashSet<String> = all.iter().filter_map(cluster_ip).collect();
    let [a, b] = ADDRESSES;
    let mut free = (1..=u8::MAX)
        .flat_map(|c| (1..u8::MAX).map(move |d| Ipv4Addr::new(a, b, c, d).to_string()))
        .filter(|address| !taken.contains(address));
    for (at, some) in names.chunks(AT_ONCE).enumerate() {
        let mut puts = Vec::new();
        for (i, name) in some.iter().enumerate() {
            let number = at * AT_ONCE + i + 1;
            let copy = Marks {
                name: name.clone(),
                address: free.next().context("an address is left")?,
                uids: origin
                    .uids
                    .iter()
                    .map(|uid| renumbered(uid, number))
                    .collect(),
            };
            puts.extend(stored.iter().map(|stored| stored.put(&origin, &copy)));
        }
        put(&puts).await?;
    }
    Ok(())
}

fn cluster_ip(service: &Service) -> Option<String> {
    let address = service.spec.as_ref()?.cluster_ip.clone()?;
    Some(address).filter(|address| address.parse::<Ipv4Addr>().is_ok())
}

/// Different in its first eight digits.
fn renumbered(uid: &str, number: usize) -> String {
    format!("{number:08x}{}", &uid[8..])
}

async fn put(puts: &[Value]) -> Result<()> {
    let body = serde_json::to_vec(&json!({"success": puts}))?;
    let answer = exchange(Request::post(ETCD).body(Full::from(body))?).await?;
    ensure!(
        answer.status().is_success(),
        "etcd answered {}: {}",
        answer.status(),
        answer.body()
    );
    Ok(())
}

// === impl Stored ===

impl Stored {
    fn put(&self, origin: &Marks, copy: &Marks) -> Value {
        let mut text = self.text.replace(&origin.name, &copy.name);
        text = text.replace(&origin.address, &copy.address);
        for (uid, other) in origin.uids.iter().zip(&copy.uids) {
            text = text.replace(uid, other);
        }
        let name = if self.is_address {
            &copy.address
        } else {
            &copy.name
        };
        let key = format!("/registry/{}/{name}", self.folder);
        json!({"requestPut": {"key": ByteString(key.into()), "value": ByteString(text.into())}})
    }
}
