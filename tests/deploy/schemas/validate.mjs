// Print what the published schemas say against custom resources, which come as a JSON list on standard input.
import { readFileSync } from "node:fs";

const PACKAGES = { "monitoring.coreos.com": "prometheus-operator", "gateway.networking.k8s.io": "gateway-api" };
const said = [];
for (const resource of JSON.parse(readFileSync(0, "utf8"))) {
  const { apiVersion, kind } = resource;
  const from = `@kubernetes-models/${PACKAGES[apiVersion.split("/")[0]]}/${apiVersion}/${kind}`;
  const { [kind]: Model } = await import(from);
  try {
    new Model(resource).validate();
  } catch (error) {
    said.push(`${kind}: ${error.message}`);
  }
}
console.log(JSON.stringify(said));
