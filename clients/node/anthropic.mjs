import Anthropic from '@anthropic-ai/sdk';

export const open = (to) => new Talk(to);

export function refusal(err) {
  if (!(err instanceof Anthropic.APIError) || !err.status) return {};
  return {
    status: err.status,
    type: err.type ?? '',
    message: err.apiMessage,
    retry_after: err.headers?.get('retry-after') ?? '',
  };
}

class Talk {
  asked = { messages: [] };
  calls = [];

  constructor({ url, key, retries, stream }) {
    this.client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: retries });
    this.stream = stream;
  }

  ask({ question: q, tools }) {
    take(this.asked, q, tools);
    return this.#send(q);
  }

  give({ results }) {
    const content = results.map((content, i) => ({ type: 'tool_result', tool_use_id: this.calls[i].id, content }));
    this.asked.messages.push({ role: 'user', content });
    return this.#send({});
  }

  async count({ question: q, tools }) {
    const asked = { messages: [] };
    take(asked, q, tools);
    return (await this.client.messages.countTokens({ model: 'claude-any', ...asked })).input_tokens;
  }

  async models() {
    const names = [];
    for await (const model of this.client.models.list()) names.push(model.id);
    return names;
  }

  async #send(q) {
    const params = {
      model: 'claude-any',
      max_tokens: q.max_tokens || 4500,
      thinking: { type: 'enabled', budget_tokens: 1024 },
      ...this.asked,
    };
    let whole;
    if (this.stream) {
      const stream = this.client.messages.stream(params);
      let text = '';
      let pieces = 0;
      for await (const event of stream) {
        if (event.type !== 'content_block_delta' || event.delta.type !== 'text_delta') continue;
        text += event.delta.text;
        if (++pieces >= (q.leave_after || Infinity)) return { text };
      }
      whole = await stream.finalMessage();
    } else {
      whole = await this.client.messages.create(params);
    }
    this.asked.messages.push({ role: 'assistant', content: whole.content });
    const blocks = (type) => whole.content.filter((block) => block.type === type);
    this.calls = blocks('tool_use').map((b) => ({ id: b.id, name: b.name, arguments: JSON.stringify(b.input) }));
    return {
      text: blocks('text').map((b) => b.text).join(''),
      reasoning: blocks('thinking').map((b) => b.thinking).join(''),
      calls: this.calls.length ? this.calls : undefined,
      finish: whole.stop_reason,
      in: whole.usage.input_tokens,
      out: whole.usage.output_tokens,
    };
  }
}

function take(asked, q, tools) {
  if (q.system) asked.system = q.system;
  const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: q.image } };
  asked.messages.push({ role: 'user', content: q.image ? [{ type: 'text', text: q.text }, image] : q.text });
  if (q.tools) asked.tools = tools.map(({ name, description, schema }) => ({ name, description, input_schema: schema }));
}
