// Package metrics tells Prometheus what a node does, in its text format over HTTP.
//
// It exists so that a network is watched and alarms are raised with the tools that
// are there. It counts nothing itself: every scrape asks the node for a Snapshot,
// made of what the local socket answers and of the counters that the rooms keep
// anyway, and every metric is a row of a table that says how to read it from there.
// So there is one count of each thing, and nothing to do while nobody asks.
//
// It does not listen (package node does), push, keep history, or say who may ask.
package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/internal/node/api"
	"github.com/meshmpi/meshmpi/relay"
	"github.com/meshmpi/meshmpi/shaper/hint"
	"github.com/meshmpi/meshmpi/shaper/share"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Snapshot is what a node knows of itself and of others at one moment. Lists are in
// an order that does not change from one to the next.
type Snapshot struct {
	Status api.Status
	Sites  api.SitesReply
	Shape  api.ShapeReply

	Lending []share.Share // of links that have a limit; To is "" for the uplink
	Notices share.Counters

	Asked    hint.Request // by programs, all together
	Programs int          // that may ask

	Relay *relay.ServerStats // nil: this node is none

	Sessions int // commands of others that run here
	Meetings int // jobs whose ranks meet here

	Drops []Drop
}

// Drop counts what one part of the node has refused or lost for one reason.
type Drop struct {
	Part, Reason string // words that do not depend on traffic
	Count        uint64 // since the node started
}

// Bounds of a scrape.
const (
	// MaxSeries is how many series one metric has. The rest, by the order of the
	// snapshot, is left out and counted.
	MaxSeries = 2048

	scrapes  = 4               // at a time; more are refused
	readTime = 5 * time.Second // for a snapshot
)

// Handler answers GET /metrics with what read returns, and with status 500 where
// that fails. It may be used from any goroutine, and so must read.
func Handler(read func(context.Context) (*Snapshot, error), log *slog.Logger) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(newCollector(read), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), MaxRequestsInFlight: scrapes,
	}))
	return mux
}

// row is one metric: what it is called, and how it is read from a snapshot.
type row struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(s *Snapshot, put put)
}

// put takes one series of a metric, with a value for each label.
type put func(v float64, labels ...string)

// collector turns snapshots into metrics.
type collector struct {
	read    func(context.Context) (*Snapshot, error)
	rows    []row
	descs   []*prometheus.Desc // of the rows
	omitted *prometheus.Desc
}

var _ prometheus.Collector = (*collector)(nil)

func newCollector(read func(context.Context) (*Snapshot, error)) *collector {
	c := &collector{
		read: read, rows: slices.Concat(nodeRows, peerRows, pacingRows, lendingRows, serviceRows),
		omitted: prometheus.NewDesc(omittedName, "Series that this scrape has left out, since a metric would have more than 2048.", nil, nil),
	}
	for _, r := range c.rows {
		c.descs = append(c.descs, prometheus.NewDesc(r.name, r.help, r.labels, nil))
	}
	return c
}

// omittedName counts what MaxSeries cuts off.
const omittedName = "meshmpi_scrape_omitted_series"

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
	ch <- c.omitted
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	s, err := c.read(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.omitted, fmt.Errorf("metrics: %w", err))
		return
	}
	omitted := 0
	for i, r := range c.rows {
		n := 0
		r.read(s, func(v float64, labels ...string) {
			if n++; n > MaxSeries {
				omitted++
				return
			}
			m, err := prometheus.NewConstMetric(c.descs[i], r.kind, v, labels...)
			if err != nil {
				m = prometheus.NewInvalidMetric(c.descs[i], err)
			}
			ch <- m
		})
	}
	ch <- prometheus.MustNewConstMetric(c.omitted, prometheus.GaugeValue, float64(omitted))
}
