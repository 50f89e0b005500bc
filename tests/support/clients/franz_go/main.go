// Logs in as it is told, writes a record and reads it back: settings as JSON on the command line, the value on stdout.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type settings struct{ Bootstrap, Topic, Mechanism, User, Password, Token, Ca, Cert, Key string }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var given settings
	check(json.Unmarshal([]byte(os.Args[1]), &given))
	options := []kgo.Opt{
		kgo.SeedBrokers(given.Bootstrap), kgo.AllowAutoTopicCreation(),
		kgo.ConsumerGroup(given.Topic), kgo.ConsumeTopics(given.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	switch given.Mechanism {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: given.User, Pass: given.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: given.Token}.AsMechanism()))
	}
	if given.Ca != "" {
		pem, err := os.ReadFile(given.Ca)
		check(err)
		trusted := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		trusted.RootCAs.AppendCertsFromPEM(pem)
		if given.Cert != "" {
			pair, err := tls.LoadX509KeyPair(given.Cert, given.Key)
			check(err)
			trusted.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(trusted))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	check(client.ProduceSync(ctx, &kgo.Record{Topic: given.Topic, Value: []byte("x")}).FirstErr())
	for {
		fetches := client.PollFetches(ctx)
		check(ctx.Err())
		for _, record := range fetches.Records() {
			fmt.Print(string(record.Value))
			return
		}
	}
}
