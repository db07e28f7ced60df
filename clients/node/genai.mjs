import { ApiError, GoogleGenAI } from '@google/genai';

const model = 'gemini-any';

export const open = (to) => new Talk(to);

export function refusal(err) {
  if (!(err instanceof ApiError)) return {};
  // Of an error within a stream the client says the status first.
  const { error } = JSON.parse(err.message.slice(err.message.indexOf('{')));
  return { status: err.status, type: error.status, message: error.message };
}

// Talk leaves the history to the client, which keeps each piece of a stream as
// a content of its own.
class Talk {
  calls = [];

  constructor({ url, key, stream }) {
    this.client = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url } });
    this.stream = stream;
  }

  ask({ question: q, tools }) {
    this.chat ??= this.client.chats.create({ model, config: config(q, tools) });
    const image = { inlineData: { mimeType: 'image/png', data: q.image } };
    return this.#send(q.image ? [{ text: q.text }, image] : q.text, q);
  }

  give({ results }) {
    const parts = results.map((output, i) => ({
      functionResponse: { id: this.calls[i].id, name: this.calls[i].name, response: { output } },
    }));
    return this.#send(parts, {});
  }

  async count({ question: q }) {
    return (await this.client.models.countTokens({ model, contents: q.text })).totalTokens;
  }

  async models() {
    const names = [];
    for await (const m of await this.client.models.list()) names.push(m.name.replace(/^models\//, ''));
    return names;
  }

  async #send(message, q) {
    const out = { text: '', reasoning: '', calls: [] };
    if (this.stream) {
      const left = new AbortController();
      const params = { message };
      if (q.leave_after) params.config = { ...config(q), abortSignal: left.signal };
      let pieces = 0;
      for await (const chunk of await this.chat.sendMessageStream(params)) {
        read(chunk, out);
        if (++pieces >= (q.leave_after || Infinity)) {
          left.abort();
          return { text: out.text };
        }
      }
    } else {
      read(await this.chat.sendMessage({ message }), out);
    }
    this.calls = out.calls;
    return { ...out, calls: out.calls.length ? out.calls : undefined };
  }
}

function config(q, tools) {
  const made = { thinkingConfig: { includeThoughts: true } };
  if (q.system) made.systemInstruction = q.system;
  if (q.max_tokens) made.maxOutputTokens = q.max_tokens;
  if (q.tools) {
    made.tools = [
      {
        functionDeclarations: tools.map(({ name, description, schema }) => ({
          name,
          description,
          parametersJsonSchema: schema,
        })),
      },
    ];
  }
  return made;
}

// read adds a response, or a piece of one, to what came.
function read(response, out) {
  const usage = response.usageMetadata;
  if (usage) {
    out.in = usage.promptTokenCount;
    out.out = (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0);
  }
  const candidate = response.candidates?.[0];
  if (candidate?.finishReason) out.finish = candidate.finishReason;
  for (const part of candidate?.content?.parts ?? []) {
    if (part.functionCall) {
      const { id, name, args } = part.functionCall;
      out.calls.push({ id, name, arguments: JSON.stringify(args) });
    } else if (part.thought) {
      out.reasoning += part.text;
    } else {
      out.text += part.text ?? '';
    }
  }
}
