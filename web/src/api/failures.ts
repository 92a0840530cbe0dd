// Generated from the API's own document by `make web-types`. Do not edit.

/** What went wrong and what to do next, by cause or by code. */
export const FAILURES: Record<string, { happened: string; next: string; again: boolean }> = {
  no_key: {"happened": "There is no key for {provider}.", "next": "Set {key} where clew runs and start it anew, or choose another model.", "again": false},
  key_refused: {"happened": "{provider} refused the key.", "next": "Check the key and what it may use, or choose another model.", "again": false},
  no_credit: {"happened": "The account with {provider} has no credit left, or has reached a limit of its own.", "next": "Look at its credit and limits, or choose another model.", "again": false},
  rate_limit: {"happened": "{provider} takes no more requests for now.", "next": "Wait a little and try again, or choose another model.", "again": true},
  provider_down: {"happened": "{provider} has a problem of its own.", "next": "Try again in a while, or choose another model.", "again": true},
  unreachable: {"happened": "{provider} could not be reached.", "next": "Look at the network where clew runs, then try again.", "again": true},
  broken_off: {"happened": "The answer of {provider} broke off.", "next": "What came is kept: go on from there.", "again": true},
  too_large: {"happened": "This is more than the model takes.", "next": "Summarise the conversation, send less, or choose a model with a larger window.", "again": false},
  no_model: {"happened": "{provider} has no model of that name.", "next": "Choose another model.", "again": false},
  request_refused: {"happened": "{provider} did not take the request.", "next": "Change what was sent, or choose another model; the details say why.", "again": false},
  not_installed: {"happened": "What speaks with {provider} is not installed.", "next": "The details name the extra of clew that brings it: install that where clew runs, and start it anew.", "again": false},
  unknown: {"happened": "The model could not answer.", "next": "Try again, or choose another model.", "again": true},
  model_failed: {"happened": "The model could not answer.", "next": "Try again, or choose another model.", "again": true},
  context_too_large: {"happened": "This does not fit into the model’s window.", "next": "Summarise the conversation, send less, or choose a model with a larger window.", "again": false},
  compaction_failed: {"happened": "The earlier turns could not be summarised.", "next": "Try again, or choose another model.", "again": true},
  interrupted: {"happened": "Interrupted: the server stopped while this was being written.", "next": "What was written is kept: go on from there.", "again": true},
  storage_full: {"happened": "There is no room left where the sessions are kept.", "next": "Make room on that disk, then try again.", "again": true},
  store_unavailable: {"happened": "The place where the sessions are kept cannot be reached.", "next": "See that it is there, then try again.", "again": true},
  store_gone: {"happened": "The place where the sessions are kept is gone.", "next": "Put it back, then start the server anew.", "again": false},
  store_busy: {"happened": "Another program holds the place where the sessions are kept.", "next": "Try again in a moment.", "again": true},
  replica_away: {"happened": "This server takes nothing on now.", "next": "Try again in a moment.", "again": true},
  internal_error: {"happened": "Something went wrong in the server.", "next": "Try again; if it stays, the server’s log says more.", "again": true},
};
