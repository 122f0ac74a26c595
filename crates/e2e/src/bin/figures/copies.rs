//! Copies of what an API server has stored, put where it keeps it. It tells of them as if it had taken them itself,
//! which would take longer the more services there are: for each address that it gives to one, it counts all others
//! twice.

use anyhow::{Context, Result, ensure};
use elasti_api::{ElastiService, names};
use elasti_e2e::exchange;
use http::Request;
use http_body_util::Full;
use jiff::SignedDuration;
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Endpoints, Service},
        discovery::v1::EndpointSlice,
        networking::v1::IPAddress,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, TypeMeta},
};
use serde_json::{Value, json};
use std::{collections::HashSet, net::Ipv4Addr, ops::RangeInclusive, time::Duration};
use tokio::time::{sleep, timeout};

/// Of a local cluster.
const ETCD: &str = "http://127.0.0.1:2379/v3/kv/txn";
/// Ten objects each; etcd takes no more than 128 at once.
const AT_ONCE: usize = 12;
/// Where the API server takes addresses from that nobody asks for.
const ADDRESSES: [u8; 2] = [10, 96];
/// On slices, whose they are.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// A service with all that belongs to it, as it is stored.
struct Original {
    marks: Marks,
    objects: Vec<Stored>,
}

/// One object that is stored, and where.
struct Stored {
    folder: String,
    name: String,
    text: String,
}

/// What differs from copy to copy.
struct Marks {
    name: String,
    address: Ipv4Addr,
    /// The resolver's, if it has one.
    port: Option<u16>,
    uids: Vec<String>,
}

/// Where to read from.
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Client,
    pub(crate) namespace: &'a str,
    pub(crate) targets: ApiResource,
    /// Resolver ports that the operator may give.
    pub(crate) ports: RangeInclusive<u16>,
}

// === impl Place ===

impl Place<'_> {
    /// Copies a service, whether anybody has worked on it yet or not.
    pub(crate) async fn copy(&self, first: &str, names: &[String]) -> Result<()> {
        let original = self.original(first).await?;
        let mut addresses = self.free_addresses().await?;
        let mut ports = self.free_ports().await?;
        for some in names.chunks(AT_ONCE) {
            let mut puts = Vec::new();
            for name in some {
                let address = addresses.next().context("an address is left")?;
                let port = match original.marks.port {
                    Some(_) => Some(ports.next().context("a port is left")?),
                    None => None,
                };
                let copy = Marks {
                    name: name.clone(),
                    address,
                    port,
                    uids: original.marks.renumbered(address),
                };
                puts.extend(original.copy(&copy));
            }
            put(&puts).await?;
        }
        Ok(())
    }

    async fn original(&self, name: &str) -> Result<Original> {
        let private = names::private_service(name);
        let service = self.api::<Service>().get(name).await?;
        let address = cluster_ip(&service).context("the first service has an address")?;
        let elasti_service = self.api::<ElastiService>().get(name).await?;
        let is_known = elasti_service.status.is_some();
        let port = elasti_service
            .status
            .and_then(|status| Some(status.ports.first()?.resolver_port));
        // First the address: a service without one is given another.
        let mut found = vec![
            self.address(&address.to_string()).await?,
            self.get::<Service>(name, "services/specs").await?,
            self.get::<Endpoints>(name, "services/endpoints").await?,
            self.custom(name, &self.targets).await?,
            self.custom(name, &ApiResource::erase::<ElastiService>(&()))
                .await?,
        ];
        found.extend(self.slices(name).await?);
        if is_known {
            found.push(self.get::<Service>(&private, "services/specs").await?);
            found.push(
                self.get::<Endpoints>(&private, "services/endpoints")
                    .await?,
            );
            found.extend(self.slices(&private).await?);
        }
        let mut uids = Vec::new();
        let mut objects = Vec::new();
        for (folder, mut object) in found {
            object.metadata.resource_version = None;
            uids.push(object.uid().context("it is stored")?);
            objects.push(Stored {
                folder,
                name: object.name_any(),
                text: serde_json::to_string(&object)?,
            });
        }
        let marks = Marks {
            name: name.into(),
            address,
            port: port.map(TryInto::try_into).transpose()?,
            uids,
        };
        Ok(Original { marks, objects })
    }

    async fn get<K>(&self, name: &str, folder: &str) -> Result<(String, DynamicObject)>
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = self.dynamic(&resource);
        let object = made(&resource.kind, name, async || Ok(api.get_opt(name).await?)).await?;
        Ok((format!("{folder}/{}", self.namespace), object))
    }

    async fn custom(&self, name: &str, resource: &ApiResource) -> Result<(String, DynamicObject)> {
        let object = self.dynamic(resource).get(name).await?;
        let (group, plural) = (&resource.group, &resource.plural);
        Ok((format!("{group}/{plural}/{}", self.namespace), object))
    }

    async fn address(&self, address: &str) -> Result<(String, DynamicObject)> {
        let resource = ApiResource::erase::<IPAddress>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let mut object = api.get(address).await?;
        // One that an API server sees before its service would soon be taken for leaked.
        if let Some(Time(created)) = &mut object.metadata.creation_timestamp {
            *created += HOUR;
        }
        Ok((resource.plural, object))
    }

    async fn slices(&self, service: &str) -> Result<Vec<(String, DynamicObject)>> {
        let resource = ApiResource::erase::<EndpointSlice>(&());
        let of_service = ListParams::default().labels(&format!("{SERVICE_NAME}={service}"));
        let api = self.dynamic(&resource);
        let some = async || {
            let all = api.list(&of_service).await?.items;
            Ok(Some(all).filter(|all| !all.is_empty()))
        };
        let all = made(&resource.kind, service, some).await?;
        let folder = format!("{}/{}", resource.plural, self.namespace);
        // A list says of what kind its members are, and they do not.
        let whole = |mut slice: DynamicObject| {
            slice.types = Some(TypeMeta::resource::<EndpointSlice>());
            (folder.clone(), slice)
        };
        Ok(all.into_iter().map(whole).collect())
    }

    async fn free_addresses(&self) -> Result<impl Iterator<Item = Ipv4Addr> + use<>> {
        let services: Api<Service> = Api::all(self.client.clone());
        let all = services.list(&ListParams::default()).await?;
        let taken: HashSet<Ipv4Addr> = all.iter().filter_map(cluster_ip).collect();
        let [a, b] = ADDRESSES;
        Ok((1..=u8::MAX)
            .flat_map(move |c| (1..u8::MAX).map(move |d| Ipv4Addr::new(a, b, c, d)))
            .filter(move |address| !taken.contains(address)))
    }

    async fn free_ports(&self) -> Result<impl Iterator<Item = u16> + use<>> {
        let all = self
            .api::<ElastiService>()
            .list(&ListParams::default())
            .await?;
        let taken: HashSet<i32> = all
            .iter()
            .filter_map(|object| object.status.as_ref())
            .flat_map(|status| &status.ports)
            .map(|port| port.resolver_port)
            .collect();
        let ports = self.ports.clone();
        Ok(ports.filter(move |port| !taken.contains(&i32::from(*port))))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    fn dynamic(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), self.namespace, resource)
    }
}

/// What controllers make for a service comes a little later.
async fn made<T>(kind: &str, of: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let made = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, made)
        .await
        .with_context(|| format!("waiting for {kind} of {of}"))?
}

fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    service.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok()
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

// === impl Original ===

impl Original {
    fn copy(&self, copy: &Marks) -> Vec<Value> {
        let changes = self.marks.changes(copy);
        let changed = |text: &str| {
            let change = |text: String, (old, new): &(String, String)| text.replace(old, new);
            changes.iter().fold(text.to_owned(), change)
        };
        let objects = self.objects.iter();
        let put = objects.map(|stored| {
            let key = format!("/registry/{}/{}", stored.folder, changed(&stored.name));
            let value = changed(&stored.text);
            json!({"requestPut": {"key": ByteString(key.into()), "value": ByteString(value.into())}})
        });
        put.collect()
    }
}

// === impl Marks ===

impl Marks {
    /// Their first eight digits are the address, which no other copy has, of whatever original: objects with one uid
    /// would be one to whoever collects garbage.
    fn renumbered(&self, address: Ipv4Addr) -> Vec<String> {
        let (number, uids) = (address.to_bits(), self.uids.iter());
        uids.map(|uid| format!("{number:08x}{}", &uid[8..]))
            .collect()
    }

    /// In this order: some of these contain others.
    fn changes(&self, copy: &Self) -> Vec<(String, String)> {
        let generated = [names::private_service, names::resolver_slice];
        let mut changes: Vec<(String, String)> =
            generated.map(|of| (of(&self.name), of(&copy.name))).into();
        changes.push((self.name.clone(), copy.name.clone()));
        changes.push((self.address.to_string(), copy.address.to_string()));
        if let (Some(old), Some(new)) = (self.port, copy.port) {
            changes.push((format!("ort\":{old}"), format!("ort\":{new}")));
        }
        changes.extend(self.uids.iter().cloned().zip(copy.uids.iter().cloned()));
        changes
    }
}
