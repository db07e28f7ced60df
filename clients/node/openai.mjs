// What both formats of the package openai share.
import OpenAI from 'openai';

export const connect = ({ url, key, retries }) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: retries });

export async function models(client) {
  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  return names;
}

export function refusal(err) {
  if (!(err instanceof OpenAI.APIError) || !err.status) return {};
  return {
    status: err.status,
    type: err.type ?? '',
    code: err.code ?? '',
    message: err.error?.message,
    retry_after: err.headers?.get('retry-after') ?? '',
  };
}
