import { connect, models, refusal } from './openai.mjs';

export { refusal };

export const open = (to) => new Talk(to);

// Talk sends all items back, reasoning encrypted, unless the earlier response is
// named.
class Talk {
  asked = { items: [] };
  calls = [];

  constructor(to) {
    this.client = connect(to);
    this.stream = to.stream;
    this.byName = to.previous;
  }

  ask({ question: q, tools }) {
    take(this.asked, q, tools);
    return this.#send(q);
  }

  give({ results }) {
    results.forEach((output, i) => {
      this.asked.items.push({ type: 'function_call_output', call_id: this.calls[i].id, output });
    });
    return this.#send({});
  }

  async count({ question: q, tools }) {
    const asked = { items: [] };
    take(asked, q, tools);
    const reply = await this.client.responses.inputTokens.count({
      model: 'gpt-any',
      instructions: asked.instructions,
      input: asked.items,
      tools: asked.tools,
    });
    return reply.input_tokens;
  }

  models() {
    return models(this.client);
  }

  async #send(q) {
    const params = {
      model: 'gpt-any',
      instructions: this.asked.instructions,
      input: this.asked.items,
      tools: this.asked.tools,
      include: ['reasoning.encrypted_content'],
      store: this.byName,
      previous_response_id: this.previous,
    };
    if (q.max_tokens) params.max_output_tokens = q.max_tokens;
    let whole;
    if (this.stream) {
      const stream = this.client.responses.stream(params);
      let text = '';
      let pieces = 0;
      for await (const event of stream) {
        if (event.type !== 'response.output_text.delta') continue;
        text += event.delta;
        if (++pieces >= (q.leave_after || Infinity)) return { text };
      }
      whole = await stream.finalResponse();
      if (whole.output_text !== text) throw new Error(`the pieces are ${text}, the end says ${whole.output_text}`);
    } else {
      whole = await this.client.responses.create(params);
    }
    if (whole.status === 'failed') throw new Error(`the response failed: ${JSON.stringify(whole.error)}`);
    if (this.byName) {
      this.asked.items = [];
      this.previous = whole.id;
    } else {
      this.asked.items.push(...whole.output);
    }
    this.calls = whole.output
      .filter((item) => item.type === 'function_call')
      .map((item) => ({ id: item.call_id, name: item.name, arguments: item.arguments }));
    const thoughts = whole.output.filter((item) => item.type === 'reasoning');
    return {
      text: whole.output_text,
      reasoning: thoughts.flatMap((item) => (item.summary.length ? item.summary : item.content)).map((s) => s.text).join(''),
      calls: this.calls.length ? this.calls : undefined,
      finish: whole.status,
      in: whole.usage.input_tokens,
      out: whole.usage.output_tokens,
    };
  }
}

function take(asked, q, tools) {
  if (q.system) asked.instructions = q.system;
  const image = { type: 'input_image', detail: 'auto', image_url: `data:image/png;base64,${q.image}` };
  asked.items.push({ role: 'user', content: q.image ? [{ type: 'input_text', text: q.text }, image] : q.text });
  if (q.tools) {
    asked.tools = tools.map(({ name, description, schema }) => ({
      type: 'function',
      name,
      description,
      parameters: schema,
      strict: false,
    }));
  }
}
