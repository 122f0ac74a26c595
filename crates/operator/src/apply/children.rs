use super::{Error, FIELD_MANAGER, Subject, gone_is_fine};
use crate::desired::{self, Addressing};
use elasti_api::{ElastiService, names};
use k8s_openapi::{
    api::{core::v1::Service, discovery::v1::EndpointSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
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
    api.patch(&name, &apply(), &Patch::Apply(&object)).await?;
    Ok(())
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
        api.patch(&slice.name, &apply(), &Patch::Apply(&object))
            .await?;
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

fn apply() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}
