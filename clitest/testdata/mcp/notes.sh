# A tool server that speaks MCP over standard input and output. It has one
# tool, read_note.
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
    answer='{"protocolVersion":"'$version'","capabilities":{"tools":{}},"serverInfo":{"name":"notes","version":"1.0.0"}}' ;;
  *'"method":"tools/list"'*)
    answer='{"tools":[{"name":"read_note","description":"Reads the note.","inputSchema":{"type":"object","properties":{"which":{"type":"string"}}}}]}' ;;
  *'"method":"tools/call"'*)
    answer='{"content":[{"type":"text","text":"remember the milk"}]}' ;;
  *'"method":"prompts/list"'*) answer='{"prompts":[]}' ;;
  *'"method":"resources/list"'*) answer='{"resources":[]}' ;;
  *) answer='{}' ;;
  esac
  if [ -n "$id" ]; then
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$answer"
  fi
done
