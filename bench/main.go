// Command bench measures polar against the bars of its design, each beside
// something measured in the same run: the machines this runs on are noisy, so
// ratios count and absolute times do not. It talks to loopback only.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"time"
)

// figure is one line of the report.
type figure struct {
	what     string
	measured string
	bar      string
	met      bool
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "proxy" {
		fatal(proxy(context.Background(), os.Args[2], os.Args[3]))
		return
	}
	polar := flag.String("polar", "bin/polar", "the binary to measure")
	quick := flag.Bool("quick", false, "fewer rounds")
	only := flag.String("only", "", "measure one part: latency, throughput, streaming, wires, streams, builder, calllog, control or footprint")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	b := &bench{polar: *polar, rounds: 300}
	if *quick {
		b.rounds = 60
	}
	fatal(b.run(ctx, *only))
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench runs the measurements in order and prints each as it comes.
type bench struct {
	polar  string
	rounds int
}

func (b *bench) run(ctx context.Context, only string) error {
	fmt.Printf("%-64s %-34s %-44s\n", "WHAT", "MEASURED", "BAR")
	missed := 0
	for _, part := range []struct {
		name    string
		measure func(context.Context) ([]figure, error)
	}{
		{"latency", b.latency},
		{"throughput", b.throughput},
		{"streaming", b.streaming},
		{"wires", b.everyWire},
		{"streams", b.openStreams},
		{"builder", b.builder},
		{"calllog", b.callLog},
		{"control", b.controlPlane},
		{"footprint", b.footprint},
	} {
		if only != "" && only != part.name {
			continue
		}
		figures, err := part.measure(ctx)
		if err != nil {
			return err
		}
		for _, f := range figures {
			verdict := "ok"
			switch {
			case f.bar == "":
				verdict = ""
			case !f.met:
				verdict, missed = "MISSED", missed+1
			}
			fmt.Printf("%-64s %-34s %-44s %s\n", f.what, f.measured, f.bar, verdict)
		}
	}
	if missed > 0 {
		fmt.Printf("%d figures miss their bar\n", missed)
	}
	return nil
}

// proxy is the yardstick: the standard library's reverse proxy and nothing else.
func proxy(ctx context.Context, address, engine string) error {
	u, err := url.Parse(engine)
	if err != nil {
		return err
	}
	p := httputil.NewSingleHostReverseProxy(u)
	p.FlushInterval = -1
	p.Transport = &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	// Without full duplex the server closes a request's body when an engine
	// answers before the proxy has noticed that body's end, and cuts the answer.
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		p.ServeHTTP(w, r)
	}))
}
