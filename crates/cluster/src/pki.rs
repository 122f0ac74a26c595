//! The cluster's certificates: one authority, a key for service-account tokens, and an identity for
//! each component.

use crate::{layout::Layout, network};
use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;
use std::{fs, net::IpAddr, path::Path};

pub(crate) const NODE_NAME: &str = "node";

struct Identity {
    file: &'static str,
    name: &'static str,
    group: &'static str,
}

/// CoreDNS reads everything and writes nothing; a role of its own would protect nothing here.
const CLIENTS: [Identity; 7] = [
    Identity {
        file: "admin",
        name: "kubernetes-admin",
        group: "system:masters",
    },
    Identity {
        file: "coredns",
        name: "coredns",
        group: "system:masters",
    },
    Identity {
        file: "kubelet",
        name: "system:node:node",
        group: "system:nodes",
    },
    Identity {
        file: "kube-controller-manager",
        name: "system:kube-controller-manager",
        group: "",
    },
    Identity {
        file: "kube-scheduler",
        name: "system:kube-scheduler",
        group: "",
    },
    Identity {
        file: "kube-proxy",
        name: "system:kube-proxy",
        group: "",
    },
    Identity {
        file: "front-proxy",
        name: "front-proxy",
        group: "",
    },
];

pub(crate) fn write(layout: &Layout) -> Result<()> {
    let dir = layout.pki();
    fs::create_dir_all(&dir)?;
    let authority = authority()?;
    fs::write(dir.join("ca.crt"), authority.pem())?;
    let tokens = KeyPair::generate()?;
    fs::write(dir.join("service-accounts.key"), tokens.serialize_pem())?;
    fs::write(dir.join("service-accounts.pub"), tokens.public_key_pem())?;

    for identity in &CLIENTS {
        let mut params = params(identity.name, ExtendedKeyUsagePurpose::ClientAuth);
        if !identity.group.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, identity.group);
        }
        issue(&dir, identity.file, params, &authority)?;
        write_kubeconfig(layout, identity.file)?;
    }

    let mut server = params("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth);
    server.subject_alt_names = vec![
        SanType::DnsName("kubernetes".try_into()?),
        SanType::DnsName("kubernetes.default".try_into()?),
        SanType::DnsName("kubernetes.default.svc".try_into()?),
        SanType::DnsName(format!("kubernetes.default.svc.{}", network::DOMAIN).try_into()?),
        SanType::DnsName("localhost".try_into()?),
        address("127.0.0.1")?,
        address(network::NODE)?,
        address(network::API_SERVICE)?,
    ];
    issue(&dir, "kube-apiserver", server, &authority)?;

    let mut kubelet = params(NODE_NAME, ExtendedKeyUsagePurpose::ServerAuth);
    kubelet.subject_alt_names = vec![
        address(network::NODE)?,
        SanType::DnsName(NODE_NAME.try_into()?),
    ];
    issue(&dir, "kubelet-server", kubelet, &authority)
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "elasti-cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}

fn params(name: &str, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params
}

fn address(text: &str) -> Result<SanType> {
    Ok(SanType::IpAddress(text.parse::<IpAddr>()?))
}

fn issue(
    dir: &Path,
    file: &str,
    params: CertificateParams,
    authority: &CertifiedIssuer<'_, KeyPair>,
) -> Result<()> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    fs::write(dir.join(format!("{file}.crt")), certificate.pem())?;
    fs::write(dir.join(format!("{file}.key")), key.serialize_pem())?;
    Ok(())
}

fn write_kubeconfig(layout: &Layout, user: &str) -> Result<()> {
    let pki = layout.pki();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": layout.name(), "cluster": {
            "server": format!("https://{}:{}", network::NODE, network::API_PORT),
            "certificate-authority": pki.join("ca.crt"),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate": pki.join(format!("{user}.crt")),
            "client-key": pki.join(format!("{user}.key")),
        }}],
        "contexts": [{"name": layout.name(), "context": {"cluster": layout.name(), "user": user}}],
        "current-context": layout.name(),
    });
    fs::write(
        layout.kubeconfig_of(user),
        serde_json::to_vec_pretty(&config)?,
    )?;
    Ok(())
}
