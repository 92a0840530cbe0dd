"""The operations of the blocking client. Written by ``make client`` from the table of operations."""

from __future__ import annotations

from clew.fronts.remote.blocking_call import BlockingView, Iterator, blocking, rewinding, submitting
from clew.fronts.remote.client import AsyncClient
from clew.fronts.remote.engine import RemoteEvents, RemoteSchedules, RemoteWebhooks

__all__ = ["ClientOperations", "Events", "ScheduleOperations", "Webhooks"]


class ClientOperations(BlockingView):
    """The operations on sessions and on the server."""

    disk_use = blocking(AsyncClient.disk_use)
    replicas = blocking(AsyncClient.replicas)
    models = blocking(AsyncClient.models)
    agents = blocking(AsyncClient.agents)
    usage = blocking(AsyncClient.usage)
    blob = blocking(AsyncClient.blob)
    find_files = blocking(AsyncClient.find_files)
    settings = blocking(AsyncClient.settings)
    change_settings = blocking(AsyncClient.change_settings)
    mcp_servers = blocking(AsyncClient.mcp_servers)
    start_mcp_server = blocking(AsyncClient.start_mcp_server)
    give_mcp_servers = blocking(AsyncClient.give_mcp_servers)
    prompts = blocking(AsyncClient.prompts)
    save_prompt = blocking(AsyncClient.save_prompt)
    remove_prompt = blocking(AsyncClient.remove_prompt)
    accept_loss = blocking(AsyncClient.accept_loss)
    list_sessions = blocking(AsyncClient.list_sessions)
    create_session = blocking(AsyncClient.create_session)
    delete_session = blocking(AsyncClient.delete_session)
    get_session = blocking(AsyncClient.get_session)
    patch_session = blocking(AsyncClient.patch_session)
    messages = blocking(AsyncClient.messages)
    accept_message = blocking(AsyncClient.accept_message)
    files = blocking(AsyncClient.files)
    submit = submitting(AsyncClient.submit)
    continue_turn = submitting(AsyncClient.continue_turn)
    abort = blocking(AsyncClient.abort)
    get_status = blocking(AsyncClient.get_status)
    watch_status = Iterator(AsyncClient.watch_status)
    queue = blocking(AsyncClient.queue)
    cancel_queued = blocking(AsyncClient.cancel_queued)
    edit_queued = blocking(AsyncClient.edit_queued)
    move_queued = blocking(AsyncClient.move_queued)
    send_queued = submitting(AsyncClient.send_queued)
    pause_queue = blocking(AsyncClient.pause_queue)
    answer = blocking(AsyncClient.answer)
    answer_all = blocking(AsyncClient.answer_all)
    answer_question = blocking(AsyncClient.answer_question)
    permissions = blocking(AsyncClient.permissions)
    set_permissions = blocking(AsyncClient.set_permissions)
    rules = blocking(AsyncClient.rules)
    add_rule = blocking(AsyncClient.add_rule)
    revoke_rule = blocking(AsyncClient.revoke_rule)
    explain_permission = blocking(AsyncClient.explain_permission)
    rewind = rewinding(AsyncClient.rewind)
    unrewind = rewinding(AsyncClient.unrewind)
    preview_restore = blocking(AsyncClient.preview_restore)
    changes = blocking(AsyncClient.changes)
    change_diff = blocking(AsyncClient.change_diff)
    compare_files = blocking(AsyncClient.compare_files)
    revert_change = blocking(AsyncClient.revert_change)
    set_head = rewinding(AsyncClient.set_head)
    reflog = blocking(AsyncClient.reflog)
    branch = blocking(AsyncClient.branch)
    tree = blocking(AsyncClient.tree)
    compact = blocking(AsyncClient.compact)
    prune = blocking(AsyncClient.prune)
    compaction = blocking(AsyncClient.compaction)
    context = blocking(AsyncClient.context)
    turn = blocking(AsyncClient.turn)
    fork = blocking(AsyncClient.fork)
    request = blocking(AsyncClient.request)
    turn_messages = blocking(AsyncClient.turn_messages)
    export = blocking(AsyncClient.export)
    import_session = blocking(AsyncClient.import_session)
    import_from = blocking(AsyncClient.import_from)
    search = blocking(AsyncClient.search)
    attach = Iterator(AsyncClient.attach)
    subscribe = Iterator(AsyncClient.subscribe)
    rename_session = blocking(AsyncClient.rename_session)
    archive_session = blocking(AsyncClient.archive_session)
    losses = blocking(AsyncClient.losses)
    examples = blocking(AsyncClient.examples)
    outcome = blocking(AsyncClient.outcome)


class Events(BlockingView):
    """The event ledger of a server."""

    receive = blocking(RemoteEvents.receive)
    list = blocking(RemoteEvents.list)


class ScheduleOperations(BlockingView):
    """The schedules of a server."""

    list = blocking(RemoteSchedules.list)
    add = blocking(RemoteSchedules.add)
    watch = blocking(RemoteSchedules.watch)
    preview = blocking(RemoteSchedules.preview)
    remove = blocking(RemoteSchedules.remove)
    get = blocking(RemoteSchedules.get)
    run = blocking(RemoteSchedules.run)
    pause = blocking(RemoteSchedules.pause)
    resume = blocking(RemoteSchedules.resume)


class Webhooks(BlockingView):
    """The webhooks of a server. The secret is set only when it was just created."""

    list = blocking(RemoteWebhooks.list)
    add = blocking(RemoteWebhooks.add)
    remove = blocking(RemoteWebhooks.remove)
    get = blocking(RemoteWebhooks.get)
    change = blocking(RemoteWebhooks.change)
    rotate = blocking(RemoteWebhooks.rotate)
