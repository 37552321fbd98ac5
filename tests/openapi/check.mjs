// Checks an OpenAPI document, and replies against its schemas.
//
//     node check.mjs DOCUMENT < REPLIES
//
// REPLIES is an array of {"name", "pointer", "body"}: `pointer` is the JSON pointer of a schema in the document. Prints the errors,
// one a line. Exit status: 0 without errors, otherwise 1.
import { readFileSync } from "node:fs";
import { Validator } from "@seriousme/openapi-schema-validator";
import Ajv from "ajv/dist/2020.js";

const errors = [];
const document = JSON.parse(readFileSync(process.argv[2], "utf8"));
const result = await new Validator().validate(structuredClone(document));
if (!result.valid) errors.push("document: " + JSON.stringify(result.errors));

const ajv = new Ajv.default({ strict: false, allErrors: true });
ajv.addSchema({ $id: "document", ...document });
for (const { name, pointer, body } of JSON.parse(readFileSync(0, "utf8"))) {
  const validate = ajv.compile({ $ref: "document#" + pointer });
  if (!validate(body)) errors.push(name + ": " + JSON.stringify(validate.errors));
}
for (const error of errors) console.log(error);
process.exit(errors.length ? 1 : 0);
