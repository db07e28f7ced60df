import { connect, models, refusal } from './openai.mjs';

export { refusal };

export const open = (to) => new Talk(to);

class Talk {
  messages = [];
  tools = undefined;
  calls = [];

  constructor(to) {
    this.client = connect(to);
    this.stream = to.stream;
  }

  ask({ question: q, tools }) {
    if (q.system) this.messages.push({ role: 'system', content: q.system });
    const image = { type: 'image_url', image_url: { url: `data:image/png;base64,${q.image}` } };
    this.messages.push({ role: 'user', content: q.image ? [{ type: 'text', text: q.text }, image] : q.text });
    if (q.tools) {
      this.tools = tools.map(({ name, description, schema }) => ({
        type: 'function',
        function: { name, description, parameters: schema },
      }));
    }
    return this.#send(q);
  }

  give({ results }) {
    results.forEach((content, i) => this.messages.push({ role: 'tool', tool_call_id: this.calls[i].id, content }));
    return this.#send({});
  }

  models() {
    return models(this.client);
  }

  async #send(q) {
    const params = { model: 'gpt-any', messages: this.messages, tools: this.tools };
    if (q.max_tokens) params.max_completion_tokens = q.max_tokens;
    let whole;
    let reasoning = '';
    if (this.stream) {
      const stream = this.client.chat.completions.stream({ ...params, stream_options: { include_usage: true } });
      let text = '';
      let pieces = 0;
      for await (const chunk of stream) {
        const delta = chunk.choices[0]?.delta ?? {};
        reasoning += delta.reasoning_content ?? '';
        text += delta.content ?? '';
        if (delta.content) pieces++;
        if (q.leave_after && pieces >= q.leave_after) return { text };
      }
      whole = await stream.finalChatCompletion();
    } else {
      whole = await this.client.chat.completions.create(params);
      reasoning = whole.choices[0].message.reasoning_content ?? '';
    }
    const { message, finish_reason: finish } = whole.choices[0];
    this.messages.push(reasoning ? { ...message, reasoning_content: reasoning } : message);
    this.calls = (message.tool_calls ?? []).map((c) => ({ id: c.id, name: c.function.name, arguments: c.function.arguments }));
    return {
      text: message.content ?? '',
      reasoning,
      calls: this.calls.length ? this.calls : undefined,
      finish,
      in: whole.usage.prompt_tokens,
      out: whole.usage.completion_tokens,
    };
  }
}
