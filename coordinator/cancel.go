package coordinator

import (
	"errors"
	"net/http"
	"strconv"

	"polar"
	"polar/api"
)

// deleteTask cancels a task. One that is not known is a 404, or with
// register_if_missing is refused should it be submitted late. Results are left
// out of the reply unless they are asked for.
func (c *Coordinator) deleteTask(w http.ResponseWriter, r *http.Request) error {
	id := polar.TaskID(r.PathValue("id"))
	value, register := r.URL.Query()["register_if_missing"]
	if register && value[0] != "" {
		var err error
		if register, err = strconv.ParseBool(value[0]); err != nil {
			return polar.Invalid("register_if_missing", "%q is not true or false", value[0])
		}
	}
	if _, err := c.cfg.Store.Cancel(r.Context(), id); err != nil {
		if !errors.Is(err, api.ErrNotFound) || !register || !polar.ValidID(string(id)) {
			return err
		}
		if err := c.cfg.Store.Bury(r.Context(), id, c.cfg.Tombstone); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, statusOf(api.TaskSummary{Task: id, Status: api.TaskCancelled}))
		return nil
	}
	c.cfg.Log.Info("task cancelled", "task", id)
	c.sessionsMoved()
	return c.writeTask(w, r, api.ResultsNone)
}
