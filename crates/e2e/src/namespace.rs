use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace as Object, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
    runtime::wait::await_condition,
};

/// A namespace that lives as long as one test.
pub struct Namespace(String);

// === impl Namespace ===

impl Namespace {
    pub async fn create(client: &Client, test: &str) -> Result<Self> {
        let object = Object {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", name_after(test))),
                labels: Some([("elasti-e2e".to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Object::default()
        };
        let created = Api::<Object>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await?;
        let name = created
            .metadata
            .name
            .context("a created namespace has a name")?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
        await_condition(accounts, "default", |account: Option<&ServiceAccount>| {
            account.is_some()
        })
        .await?;
        Ok(Self(name))
    }

    pub async fn delete(&self, client: &Client) -> Result<()> {
        let deleted = Api::<Object>::all(client.clone())
            .delete(&self.0, &DeleteParams::background())
            .await;
        match deleted {
            // The test itself may have deleted it.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

/// `module::a_test_name` becomes `a-test-name`, with room for the suffix that makes it unique.
fn name_after(test: &str) -> String {
    let name = test
        .rsplit("::")
        .next()
        .unwrap_or(test)
        .replace('_', "-")
        .to_lowercase();
    name[..name.len().min(50)].trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_named_after_its_test() {
        assert_eq!(
            name_after("api::good_objects_are_accepted"),
            "good-objects-are-accepted"
        );
        assert!(name_after(&"a_".repeat(60)).len() <= 50);
    }
}
