use super::{
    Error, FIELD_MANAGER, Subject, gone_is_fine,
    request::{self, Write},
};
use crate::desired::{self, Addressing};
use elasti_api::{ElastiService, names};
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

pub(super) async fn apply_private_service(
    client: &Client,
    subject: &Subject<'_>,
) -> Result<(), Error> {
    let Some(public) = subject.public_service else {
        return Ok(());
    };
    let addressing = subject.desired.addressing;
    if addressing == Addressing::Anew {
        remove_private_service(client, subject).await?;
    }
    let object = desired::private_service(subject.object, public, addressing);
    let api: Api<Service> = Api::namespaced(client.clone(), &subject.key.namespace);
    let name = names::private_service(&subject.object.spec.service);
    let path = request::path(&api, &name);
    let known = subject.private_service;
    match known.filter(|_| addressing != Addressing::Anew) {
        None => {
            let created = request::write(client, api.resource_url(), Write::Create, &object).await;
            if !is_there(&created) {
                return created;
            }
        }
        Some(known) => {
            if let Some(entry) = known.created {
                adopt(client, &path, entry).await?;
            }
        }
    }
    request::write(client, &path, Write::Apply, &object).await
}

/// What was written by creating it would be left there by an apply that says it no longer. So it is taken for applied.
async fn adopt(client: &Client, path: &str, entry: u8) -> Result<(), Error> {
    let field = |name: &str| format!("/metadata/managedFields/{entry}/{name}");
    let patch = json!([
        {"op": "test", "path": field("manager"), "value": FIELD_MANAGER},
        {"op": "test", "path": field("operation"), "value": "Update"},
        {"op": "replace", "path": field("operation"), "value": "Apply"},
    ]);
    request::tested(client, path, &patch).await
}

/// Whether it could not be created because it exists.
fn is_there(created: &Result<(), Error>) -> bool {
    let failure = created.as_ref().err();
    failure.is_some_and(|error| error.category() == "conflict")
}

pub(super) async fn remove_private_service(
    client: &Client,
    subject: &Subject<'_>,
) -> Result<(), Error> {
    let api: Api<Service> = Api::namespaced(client.clone(), &subject.key.namespace);
    let name = names::private_service(&subject.object.spec.service);
    gone_is_fine(api.delete(&name, &DeleteParams::default()).await.map(drop))
}

pub(super) async fn publish_slices(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &subject.key.namespace);
    for slice in subject.desired.slices() {
        let object = subject.desired.slice_object(slice, subject.object);
        let path = request::path(&api, &slice.name);
        request::write(client, &path, Write::Apply, &object).await?;
    }
    // Of a family that the service has no longer.
    for name in subject.desired.stray() {
        gone_is_fine(api.delete(name, &DeleteParams::default()).await.map(drop))?;
    }
    Ok(())
}

pub(super) async fn remove_slices(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &subject.key.namespace);
    for family in FAMILIES {
        let name = desired::slice_name(&subject.object.spec.service, family);
        gone_is_fine(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
    }
    Ok(())
}

/// All that was made for a service that is no longer named.
pub(super) async fn remove_former(
    client: &Client,
    subject: &Subject<'_>,
    service: &str,
) -> Result<(), Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &subject.key.namespace);
    for family in FAMILIES {
        remove(&slices, &desired::slice_name(service, family), subject).await?;
    }
    let services: Api<Service> = Api::namespaced(client.clone(), &subject.key.namespace);
    remove(&services, &names::private_service(service), subject).await
}

/// Unless another ElastiService has made it its own.
async fn remove<K>(api: &Api<K>, name: &str, subject: &Subject<'_>) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    // To get it would take a permission that nothing else needs.
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let kind = ElastiService::kind(&());
    let of_another = |owner: &OwnerReference| {
        owner.kind == kind && Some(owner.uid.as_str()) != subject.object.metadata.uid.as_deref()
    };
    for found in api.list_metadata(&named).await? {
        if found.owner_references().iter().any(of_another) {
            continue;
        }
        let as_found = DeleteParams::default().preconditions(Preconditions {
            uid: found.uid(),
            resource_version: found.resource_version(),
        });
        gone_is_fine(api.delete(name, &as_found).await.map(drop))?;
    }
    Ok(())
}
