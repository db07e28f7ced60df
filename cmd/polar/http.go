package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s: the port is in use; stop what holds it or choose another address", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: not permitted; choose a port above 1023", address)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// serveHTTP serves until ctx ends. Requests under way then have a few seconds
// before they are cut; handlers see their context cancelled at once.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       5 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	cut()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	<-served
	return nil
}
