"""Run one instruction with the OpenHands SDK.

Reads a job from the JSON file named on the command line. Prints one JSON line
per event of the conversation and a last one, {"outcome": ...}, that says how it
ended. Everything else that is printed goes to standard error.
"""

import json
import logging
import os
import sys


class MissingServer(Exception):
    """A tool server of the task's did not start."""


class Watch(logging.Handler):
    """Ends the run where the SDK would go on without the tools of a server, and say so in its log only."""

    def emit(self, record):
        if str(record.msg).startswith("MCP server startup failed"):
            raise MissingServer(record.getMessage().replace("; continuing without its tools", ""))


def main(path):
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)

    def write(line):
        events.write(line + "\n")
        events.flush()

    outcome = {"status": "error"}
    try:
        with open(path, encoding="utf-8") as f:
            outcome = converse(json.load(f), lambda e: write(e.model_dump_json()))
    except Exception as e:
        print(f"{type(e).__name__}: {e}", file=sys.stderr)
        outcome = {"status": "error", "code": type(e).__name__, "detail": str(e)}
    write(json.dumps({"outcome": outcome}))
    return 0 if outcome["status"] == "finished" else 1


def converse(job, on_event):
    from openhands.sdk import LLM, Agent, AgentContext, Conversation, Tool
    from openhands.sdk.conversation.exceptions import ConversationRunError
    from openhands.sdk.event.conversation_error import ConversationErrorEvent
    from openhands.tools.file_editor import FileEditorTool
    from openhands.tools.preset.default import get_default_condenser
    from openhands.tools.task_tracker import TaskTrackerTool
    from openhands.tools.terminal import TerminalTool

    logging.getLogger("openhands.sdk.conversation.impl.local_conversation").addHandler(Watch())
    errors = []

    def watch(event):
        if isinstance(event, ConversationErrorEvent):
            errors.append({"code": event.code, "detail": event.detail})
        on_event(event)

    llm = LLM(**job["llm"])
    agent = Agent(
        llm=llm,
        tools=[
            # A terminal in tmux would be one server for all sessions of a user.
            Tool(name=TerminalTool.name, params={"terminal_type": "subprocess"}),
            Tool(name=FileEditorTool.name),
            Tool(name=TaskTrackerTool.name),
        ],
        mcp_config=job.get("mcp") or {},
        agent_context=AgentContext(skills=skills_in(job.get("skills")), load_project_skills=True),
        system_prompt_kwargs={"cli_mode": True},
        condenser=get_default_condenser(llm.model_copy(update={"usage_id": "condenser"})),
    )
    conversation = Conversation(
        agent=agent,
        workspace=os.getcwd(),
        callbacks=[watch],
        visualizer=None,
        max_iteration_per_run=job["max_iterations"],
    )
    try:
        conversation.send_message(job["instruction"])
        conversation.run()
    except ConversationRunError as e:
        cause = e.original_exception
        errors.append({"code": type(cause).__name__, "detail": str(cause)})
    finally:
        conversation.close()
    status = conversation.state.execution_status.value
    if status == "finished" or not errors:
        return {"status": status}
    return {"status": status, **errors[0]}


def skills_in(folder):
    """Return the skills of a folder; a folder that has none is a mistake."""
    if not folder:
        return []
    from openhands.sdk.skills import load_skills_from_dir

    skills = [skill for kind in load_skills_from_dir(folder) for skill in kind.values()]
    if not skills:
        raise ValueError(f"no skills in {folder}")
    return skills


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
