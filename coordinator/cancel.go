package coordinator

import (
	"errors"
	"net/http"
	"strconv"

	"polar"
	"polar/api"
)

// deleteTask cancels a task. One that is not known is a 404, or with
// register_if_missing is refused should it be submitted late.
func (c *Coordinator) deleteTask(w http.ResponseWriter, r *http.Request) error {
	id := polar.TaskID(r.PathValue("id"))
	value, register := r.URL.Query()["register_if_missing"]
	if register && value[0] != "" {
		var err error
		if register, err = strconv.ParseBool(value[0]); err != nil {
			return polar.Invalid("register_if_missing", "%q is not true or false", value[0])
		}
	}
	if _, err := c.Store.Cancel(r.Context(), id); err != nil {
		if !errors.Is(err, api.ErrNotFound) || !register || !polar.ValidID(string(id)) {
			return err
		}
		if err := c.Store.Bury(r.Context(), id, c.Tombstone); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, emptyStatus(id, api.TaskCancelled))
		return nil
	}
	c.Log.Info("task cancelled", "task", id)
	c.sessionsMoved()
	sum, err := c.Store.Task(r.Context(), id)
	if err != nil {
		return err
	}
	status := emptyStatus(id, sum.Status)
	status.Total, status.Completed = sum.Total, sum.Completed
	writeJSON(w, http.StatusOK, status)
	return nil
}
