//! Services to put to sleep, one of each kind, and the Prometheus that sees whether they are used.

use crate::step;
use anyhow::{Result, bail};
use elasti_cluster::Cluster;
use elasti_e2e::install::{apply, image, rolled_out};
use std::env::{self, consts::ARCH};

pub(crate) const NAMESPACE: &str = "elasti-demo";
pub(crate) const VISITOR: &str = "visitor";
pub(crate) const WEB: &str = "web";

pub(crate) struct App {
    pub(crate) name: &'static str,
    kind: &'static str,
    /// Of its container.
    port: u16,
    /// What its port speaks.
    speaks: &'static str,
    /// What `elasti-echo` takes to ask it.
    pub(crate) question: &'static [&'static str],
}

pub(crate) const APPS: [App; 4] = [
    App {
        name: WEB,
        kind: "Deployment",
        port: 8080,
        speaks: "http",
        question: &["get", "http://web/hello"],
    },
    App {
        name: "basket",
        kind: "StatefulSet",
        port: 8080,
        speaks: "http",
        question: &["get", "http://basket/hello"],
    },
    App {
        name: "greeter",
        kind: "Deployment",
        port: 8080,
        speaks: "kubernetes.io/h2c",
        question: &["call", "greeter:80"],
    },
    App {
        name: "store",
        kind: "Deployment",
        port: 9000,
        speaks: "tcp",
        question: &["say", "store:80", "hello over TCP"],
    },
];

pub(crate) fn deploy(cluster: &Cluster) -> Result<()> {
    step("Deploying a web app, a StatefulSet, a gRPC and a TCP service, and Prometheus");
    let (name, tag) = image(cluster, "echo")?;
    let image = format!("{name}:{tag}");
    let mut manifests = vec![namespace(), visitor(&image), prometheus(cluster, &image)?];
    manifests.extend(APPS.iter().map(|app| app.workload(&image)));
    apply(cluster, &manifests.join("---\n"))?;
    rolled_out(cluster, NAMESPACE, "prometheus")?;
    rolled_out(cluster, NAMESPACE, VISITOR)
}

/// They may sleep from now on.
pub(crate) fn declare(cluster: &Cluster) -> Result<()> {
    step("Declaring an ElastiService for each of them");
    let declared: Vec<String> = APPS.iter().map(App::elasti_service).collect();
    apply(cluster, &declared.join("---\n"))
}

// === impl App ===

impl App {
    fn workload(&self, image: &str) -> String {
        let Self {
            name,
            kind,
            port,
            speaks,
            ..
        } = self;
        let service_name = if *kind == "StatefulSet" {
            format!("\n  serviceName: {name}")
        } else {
            String::new()
        };
        format!(
            r#"apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:{service_name}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: app
        image: {image}
        imagePullPolicy: IfNotPresent
        args: ["tcp=9000"]
        lifecycle: {{preStop: {{sleep: {{seconds: 3}}}}}}
        ports: [{{containerPort: 8080}}, {{containerPort: 9000}}]
        readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  selector: {{app: {name}}}
  ports: [{{port: 80, targetPort: {port}, appProtocol: {speaks}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}-pods, namespace: {NAMESPACE}}}
spec: {{clusterIP: None, selector: {{app: {name}}}, ports: [{{port: 8080}}]}}
"#
        )
    }

    /// For Prometheus: its pods, as the name server knows them.
    fn job(&self) -> String {
        let name = self.name;
        format!(
            r#"    - job_name: {name}
      dns_sd_configs: [{{names: [{name}-pods.{NAMESPACE}.svc], type: A, port: 8080, refresh_interval: 1s}}]
      relabel_configs: [{{target_label: app, replacement: {name}}}]
"#
        )
    }

    fn elasti_service(&self) -> String {
        let Self { name, kind, .. } = self;
        format!(
            r#"apiVersion: elasti.truefoundry.com/v1alpha1
kind: ElastiService
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  service: {name}
  scaleTargetRef: {{apiVersion: apps/v1, kind: {kind}, name: {name}}}
  cooldownPeriod: 10
  pollingInterval: 2s
  triggers:
  - type: prometheus
    metadata:
      serverAddress: http://prometheus.{NAMESPACE}.svc:9090
      query: sum(rate(requests_total{{app="{name}"}}[10s])) or vector(0)
      threshold: 0.05
      uptimeFilter: job="prometheus"
"#
        )
    }
}

fn namespace() -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n")
}

/// From which requests can be made by hand.
fn visitor(image: &str) -> String {
    format!(
        r#"apiVersion: apps/v1
kind: Deployment
metadata: {{name: {VISITOR}, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: {VISITOR}}}}}
  template:
    metadata: {{labels: {{app: {VISITOR}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {{name: {VISITOR}, image: "{image}", imagePullPolicy: IfNotPresent}}
"#
    )
}

/// Debian's, with the libraries of this machine, where the cluster runs here.
fn prometheus(cluster: &Cluster, image: &str) -> Result<String> {
    let prometheus;
    let (image, command, mounts, volumes) = if cluster.is_local() {
        let (mut mounts, mut volumes) = (String::new(), String::new());
        let [loader, libraries] = libraries(ARCH)?;
        for (name, path) in [
            ("program", "/usr/bin/prometheus"),
            ("loader", loader),
            ("libraries", libraries),
        ] {
            mounts += &format!("        - {{name: {name}, mountPath: {path}, readOnly: true}}\n");
            volumes += &format!("      - {{name: {name}, hostPath: {{path: {path}}}}}\n");
        }
        (image, "command: [/usr/bin/prometheus]", mounts, volumes)
    } else {
        let theirs = env::var("ELASTI_DEMO_PROMETHEUS");
        prometheus = theirs.unwrap_or_else(|_| "docker.io/prom/prometheus:v3.5.0".into());
        (&*prometheus, "", String::new(), String::new())
    };
    let jobs: String = APPS.iter().map(App::job).collect();
    Ok(format!(
        r#"apiVersion: v1
kind: ConfigMap
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
data:
  prometheus.yml: |
    global: {{scrape_interval: 1s, scrape_timeout: 1s}}
    scrape_configs:
    - job_name: prometheus
      static_configs: [{{targets: ["127.0.0.1:9090"]}}]
{jobs}---
apiVersion: v1
kind: Service
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
spec:
  selector: {{app: prometheus}}
  ports: [{{port: 9090}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: prometheus, namespace: {NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: prometheus}}}}
  template:
    metadata: {{labels: {{app: prometheus}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: prometheus
        image: {image}
        imagePullPolicy: IfNotPresent
        {command}
        args: [--config.file=/etc/demo/prometheus.yml, --storage.tsdb.path=/data]
        readinessProbe: {{httpGet: {{path: /-/ready, port: 9090}}, periodSeconds: 1}}
        volumeMounts:
        - {{name: config, mountPath: /etc/demo}}
        - {{name: data, mountPath: /data}}
{mounts}      volumes:
      - {{name: config, configMap: {{name: prometheus}}}}
      - {{name: data, emptyDir: {{}}}}
{volumes}"#
    ))
}

/// Where Debian has what starts a program, and what programs share.
fn libraries(machine: &str) -> Result<[&'static str; 2]> {
    match machine {
        "x86_64" => Ok(["/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu"]),
        "aarch64" => Ok(["/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu"]),
        other => bail!("the demo's Prometheus runs on x86_64 and aarch64, not on {other}"),
    }
}
