/// Manifests of the application that tests deploy, and of its service.
pub fn app(name: &str, kind: &str, image: &str) -> String {
    let service_name = if kind == "StatefulSet" {
        format!("\n  serviceName: {name}")
    } else {
        String::new()
    };
    format!(
        r#"
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec:{service_name}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: {image}
        imagePullPolicy: IfNotPresent
        readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{app: {name}}}
  ports: [{{port: 80, targetPort: 8080}}]
"#
    )
}
