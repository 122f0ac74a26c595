use super::{Error, FIELD_MANAGER, Subject, gone_is_fine};
use crate::desired;
use elasti_api::names;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};

pub(super) async fn apply_private_service(
    client: &Client,
    subject: &Subject<'_>,
) -> Result<(), Error> {
    let Some(public) = subject.public_service else {
        return Ok(());
    };
    let object = desired::private_service(subject.object, public);
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
    Ok(())
}

pub(super) async fn remove_slices(client: &Client, subject: &Subject<'_>) -> Result<(), Error> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &subject.key.namespace);
    for family in ["IPv4", "IPv6"] {
        let name = desired::slice_name(&subject.object.spec.service, family);
        gone_is_fine(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
    }
    Ok(())
}

fn apply() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}
