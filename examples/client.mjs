// A server of sfumato from JavaScript, without a package: plan, release and ask with fetch.
//
//     node examples/client.mjs http://127.0.0.1:8321 TOKEN museum
//
// SPDX-License-Identifier: Apache-2.0

const [address, token, dataset] = process.argv.slice(2);

/** The answer of a route below /v1; a refusal is thrown with its code and what remains. */
async function call(method, path, body) {
  const reply = await fetch(`${address}/v1${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const document = await reply.json();
  if (!reply.ok) {
    const { error, message, remaining } = document;
    throw Object.assign(new Error(message), { code: error, remaining });
  }
  return document;
}

const at = `/datasets/${encodeURIComponent(dataset)}`;
const request = { workload: [{ marginals: [["weekday"]] }], budget: { epsilon: 0.1 } };

const plan = await call("POST", `${at}/plan`, request);
console.log(`forecast: +- ${plan.rmse.toFixed(1)} by ${plan.mechanism}, fits: ${plan.fits}`);

const { answers } = await call("POST", `${at}/release`, request); // the same request once more is free
answers.weekday.forEach((day, i) => {
  console.log(`${day}: ${answers.value[i].toFixed(0)} (${answers.low[i]} to ${answers.high[i]})`);
});

try {
  await call("POST", `${at}/release`, { ...request, budget: { epsilon: 1000 } });
} catch (refusal) {
  console.log(`refused: ${refusal.code}, pure epsilon left: ${refusal.remaining.pure_epsilon}`);
}
