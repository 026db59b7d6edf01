// What a caller writes with the generated TypeScript types.
import type { components, operations, paths } from "./schema";

type Schemas = components["schemas"];

const request: Schemas["InferenceRequest"] = {
  parameters: { policy: "auto-read" },
  inputs: [{ name: "input", shape: [1, 64], datatype: "UINT8", data: [0] }],
};
const form: Schemas["PredictionForm"] = { inputs: ["file"], references: ["scan-1"] };
const upload: NonNullable<operations["upload_labelled_set"]["requestBody"]>["content"]["application/x-npz"] = "file";

export function best(answer: Schemas["Predictions"]): [string, number, string | undefined] {
  const [first] = answer.predictions;
  if (first === undefined) throw new Error("no prediction");
  return [first.label, first.confidence, first.decision?.action];
}

export type Inferred = operations["v2_infer"]["responses"]["200"]["content"]["application/json"];
export const outputs = (inferred: Inferred): string[] => inferred.outputs.map((output) => output.name);
export type Instances = paths["/v1/models/{model}:predict"]["post"]["responses"]["200"]["content"]["application/json"];
export const rows = (instances: Instances): number[][] => instances.predictions;
// @ts-expect-error: a mistyped parameter does not compile
export const mistyped: Schemas["RequestParameters"] = { polcy: "auto-read" };
export { form, request, upload };
