//! Configuration files and command lines of the components.

use crate::{Controllers, layout::Layout, network, pki::NODE_NAME};
use anyhow::Result;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Inside the cluster's mount namespace `/run` is its own.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Short, because kubelet makes sockets below it.
pub(crate) const KUBELET_ROOT: &str = "/var/lib/kubelet";
pub(crate) const PAUSE_IMAGE: &str = "elasti.local/pause:1";

/// A process of the node: its name, which is also its log's, and its command line.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

pub(crate) fn write(layout: &Layout, cni: &Path) -> Result<()> {
    let dir = layout.config();
    fs::create_dir_all(dir.join("cni"))?;
    for component in ["etcd", "containerd", "kubelet", "pods"] {
        fs::create_dir_all(layout.data(component))?;
    }
    fs::create_dir_all(layout.logs())?;
    fs::write(dir.join("resolv.conf"), "")?;
    fs::write(dir.join("containerd.toml"), containerd(layout, cni))?;
    fs::write(dir.join("Corefile"), corefile(layout))?;
    write_json(&dir.join("cni/10-bridge.conflist"), &bridge())?;
    write_json(&dir.join("audit.json"), &audit())?;
    write_json(&dir.join("kubelet.json"), &kubelet(layout))
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    Ok(fs::write(path, serde_json::to_vec_pretty(value)?)?)
}

fn containerd(layout: &Layout, cni: &Path) -> String {
    format!(
        r#"version = 2
root = {root:?}
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "/run/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {cni:?}
conf_dir = {conf:?}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
        root = layout.data("containerd"),
        conf = layout.config().join("cni"),
    )
}

fn corefile(layout: &Layout) -> String {
    format!(
        ". {{\n  errors\n  ready {node}:8181\n  cache 5\n  kubernetes {domain} in-addr.arpa ip6.arpa {{\n    kubeconfig \"{kubeconfig}\"\n    ttl 5\n  }}\n}}\n",
        node = network::NODE,
        domain = network::DOMAIN,
        kubeconfig = layout.kubeconfig_of("coredns").display(),
    )
}

/// What Elasti's own accounts do, for a test of what they may.
fn audit() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Metadata",
                "userGroups": ["system:serviceaccounts:elasti"],
            },
            {"level": "None"},
        ],
    })
}

fn bridge() -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods0",
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni",
                    "ranges": [[{"subnet": network::PODS}], [{"subnet": network::PODS_V6}]],
                    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet(layout: &Layout) -> Value {
    let pki = layout.pki();
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.join("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.join("kubelet-server.crt"),
        "tlsPrivateKeyFile": pki.join("kubelet-server.key"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "clusterDNS": [network::DNS_SERVICE],
        "clusterDomain": network::DOMAIN,
        "resolvConf": layout.config().join("resolv.conf"),
        "podLogsDir": layout.data("pods"),
        "volumePluginDir": format!("{KUBELET_ROOT}/volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "failSwapOn": false,
        "maxPods": 200,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    })
}

/// In the order in which they are started.
pub(crate) fn components(layout: &Layout, bin: &Path, controllers: Controllers) -> Vec<Component> {
    vec![
        Component {
            name: "etcd",
            program: "etcd".into(),
            args: vec![
                flag("data-dir", layout.data("etcd").display()),
                flag("listen-client-urls", "http://127.0.0.1:2379"),
                flag("advertise-client-urls", "http://127.0.0.1:2379"),
                flag("listen-peer-urls", "http://127.0.0.1:2380"),
                "--unsafe-no-fsync".into(),
            ],
        },
        Component {
            name: "containerd",
            program: "containerd".into(),
            args: vec![flag(
                "config",
                layout.config().join("containerd.toml").display(),
            )],
        },
        Component {
            name: "kube-apiserver",
            program: bin.join("kube-apiserver"),
            args: apiserver(layout),
        },
        Component {
            name: "kubelet",
            program: bin.join("kubelet"),
            args: vec![
                flag("config", layout.config().join("kubelet.json").display()),
                flag("kubeconfig", layout.kubeconfig_of("kubelet").display()),
                flag("root-dir", KUBELET_ROOT),
                flag("cert-dir", format!("{KUBELET_ROOT}/pki")),
                flag("hostname-override", NODE_NAME),
                flag("node-ip", format!("{},{}", network::NODE, network::NODE_V6)),
            ],
        },
        Component {
            name: "kube-controller-manager",
            program: bin.join("kube-controller-manager"),
            args: controller_manager(layout, controllers),
        },
        Component {
            name: "kube-scheduler",
            program: bin.join("kube-scheduler"),
            args: vec![
                flag(
                    "kubeconfig",
                    layout.kubeconfig_of("kube-scheduler").display(),
                ),
                "--leader-elect=false".into(),
            ],
        },
        Component {
            name: "kube-proxy",
            program: bin.join("kube-proxy"),
            args: vec![
                flag("kubeconfig", layout.kubeconfig_of("kube-proxy").display()),
                flag("hostname-override", NODE_NAME),
                flag("proxy-mode", "nftables"),
                flag(
                    "cluster-cidr",
                    format!("{},{}", network::PODS, network::PODS_V6),
                ),
                "--conntrack-max-per-core=0".into(),
            ],
        },
        Component {
            name: "coredns",
            program: bin.join("coredns"),
            args: vec![
                "-conf".into(),
                layout.config().join("Corefile").display().to_string(),
            ],
        },
    ]
}

fn apiserver(layout: &Layout) -> Vec<String> {
    let pki = |file: &str| layout.pki().join(file).display().to_string();
    vec![
        flag("etcd-servers", "http://127.0.0.1:2379"),
        flag("advertise-address", network::NODE),
        flag("secure-port", network::API_PORT),
        flag("service-cluster-ip-range", services()),
        flag("tls-cert-file", pki("kube-apiserver.crt")),
        flag("tls-private-key-file", pki("kube-apiserver.key")),
        flag("client-ca-file", pki("ca.crt")),
        flag("kubelet-certificate-authority", pki("ca.crt")),
        flag("kubelet-client-certificate", pki("admin.crt")),
        flag("kubelet-client-key", pki("admin.key")),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag(
            "service-account-issuer",
            format!("https://kubernetes.default.svc.{}", network::DOMAIN),
        ),
        flag(
            "service-account-signing-key-file",
            pki("service-accounts.key"),
        ),
        flag("service-account-key-file", pki("service-accounts.pub")),
        flag("requestheader-client-ca-file", pki("ca.crt")),
        flag("requestheader-allowed-names", "front-proxy"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("proxy-client-cert-file", pki("front-proxy.crt")),
        flag("proxy-client-key-file", pki("front-proxy.key")),
        "--enable-aggregator-routing".into(),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        "--allow-privileged".into(),
        flag(
            "audit-policy-file",
            layout.config().join("audit.json").display(),
        ),
        flag("audit-log-path", layout.log("audit").display()),
    ]
}

fn controller_manager(layout: &Layout, controllers: Controllers) -> Vec<String> {
    let kubeconfig = layout.kubeconfig_of("kube-controller-manager");
    let pki = layout.pki();
    let mut args = vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("root-ca-file", pki.join("ca.crt").display()),
        flag(
            "service-account-private-key-file",
            pki.join("service-accounts.key").display(),
        ),
        flag("service-cluster-ip-range", services()),
        flag("flex-volume-plugin-dir", "/run/flex-volume-plugins"),
        "--use-service-account-credentials".into(),
        "--leader-elect=false".into(),
    ];
    if controllers == Controllers::Eager {
        args.extend([flag("kube-api-qps", 500), flag("kube-api-burst", 1000)]);
    }
    args
}

fn services() -> String {
    format!("{},{}", network::SERVICES, network::SERVICES_V6)
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}
