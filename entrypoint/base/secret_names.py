"""Decide by the names of variables and hyperparameters which of them hold secrets. Pure.

A name is split into words, however they are joined: DB_PASSWORD_PROD, dbPassword, pgpassword. It names a secret if its
last words do. Words after them may specify which secret (PROD, 2), of what (PASSWORD_DB, TOKEN_GITHUB), or in which
form (PRIVATE_KEY_PEM, KEY_BASE64). SECRET_NAME and TOKEN_TTL do not name secrets.
"""

import re
from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(phrase.split()) for phrase in text.split("|"))


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BETWEEN = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_CHARS = 200  # characters that are read, from the end of a name

# Words after a secret's own words that specify which of several secrets, or its form.
_WHICH = _words(
    "prod production prd dev develop development staging stage stg test testing tests qa uat live sandbox ci local "
    "primary secondary old new current previous next main default backup global internal external a b fallback "
    "fallbacks base64 b64 value val string str raw plain plaintext encoded decoded encrypted enc hash hashed "
    "data json env pem der p8 p12 pkcs8 jwk hex armor armored content contents text"
)
# Words after them that specify what the secret is for. Words that make the name another thing's, such as HOST and
# SERVICE, are left out.
_OF_WHAT = _words(
    "db database databases sql mysql mssql mariadb postgresql pg pgsql oracle mongo sqlite rabbitmq kafka amqp mqtt "
    "smtp imap pop3 mail email ftp sftp ssh ldap wifi vpn root admin user superuser sudo api bot jwt oauth oauth2 "
    "minio influxdb clickhouse cassandra elasticsearch neo4j keystore wallet aliyun auth0"
)
# Words before a secret's name that make it the name of an option about secrets.
_ABOUT = _words("use uses using enable enabled disable disabled require requires required allow without")
_ABOUT_AT_FIRST = _words(
    "no has is show hide skip mask scan detect print needs need ignore forgot num number count max min"
)

_NOUNS = _words(
    "password passwords passwd passphrase passcode secret secrets credential credentials cred creds authorization "
    "bearer cookie mnemonic dsn pat sas psk webhook apikey apikeys pw jwt"
)
_PHRASES = _phrases(
    "connection string|connection str|conn string|conn str|connect string|webhook url|webhook uri|hook url"
    "|sas url|sas uri|auth header|auth headers|auth config|basic auth|http auth|proxy auth|docker auth"
    "|registry auth|npm auth|redis auth|pypi auth|git auth|service account json|kube config data"
    "|kubeconfig data|seed phrase|recovery phrase|recovery code|recovery codes|backup code|backup codes"
    "|pin code|user pin|api hash|card pin|secret key base|secret id|docker config json|credentials relative uri"
    "|credentials full uri|shared key lite|totp seed|otp seed"
)
_FILES = _words("kubeconfig keystore p12 pfx netrc dockerconfigjson dockercfg")  # secret unless their value is a path
_CONTENTS = _words("base64 b64 data json text content contents raw value")
_AS_A_FILE = _words("file files filename path location")

# `key` has many meanings. After these words, it is one that gives access.
_KEYS = _words(
    "api access account auth authentication authorization client consumer encryption decryption encrypt decrypt "
    "private secret signing sign master license licence service shared storage subscription function functions deploy "
    "deployment ssh pgp rsa dsa ecdsa ed25519 tls ssl pem aes hmac jwt jwe cipher crypto cookie session app "
    "application integration ingest ingestion fernet vault unseal root admin bot webhook host sa server preshared "
    "management product activation recovery wallet security write read rest restapi gpgsigning developer dev "
    "team project org workspace device dkim vapid wireguard wg tunnel"
)
_OF_DATA = _words(
    "public publishable primary foreign partition sort hash row cache object index unique composite image label "
    "feature routing map dict json item group site message event idempotency lookup column field"
)
_OF_PRIVATE_KEYS = _words("pem p8 p12 pkcs8")  # forms that follow `key`
_ID_OF_KEYS = _words("api access account auth client private secret")  # ids of other keys are no secrets
_SERVICES = _words(
    "airtable algolia amplitude anthropic apify appcenter asana aws azure binance bitbucket braintree bugsnag checkly "
    "circleci clerk cloudflare cloudinary codecov codeclimate cohere coinbase comet contentful cosmos cosmosdb "
    "coveralls cypress databricks datadog dd deepl deepseek digitalocean discord dockerhub docker dropbox elastic "
    "etherscan facebook fal fastly figma firebase fireworks flickr fossa foursquare freshdesk gcp gcs gemini gh ghcr "
    "github gitlab giphy google gpt grafana groq hcloud heroku hf honeycomb hubspot huggingface hyperbolic infura "
    "intercom ipinfo jenkins jira jwplayer kaggle kraken langchain langsmith launchdarkly linear linkedin linode "
    "lokalise mailchimp mailgun mailjet mandrill mapbox maps mistral mixpanel mollie mongo mongodb nasa neptune "
    "netlify newrelic ngrok notion npm nuget nvidia relic ngc okta omdb openai openrouter openweather openweathermap "
    "pagerduty paypal percy perplexity pinecone plaid postmark postgres posthog pusher pypi qdrant quay quandl "
    "rapidapi razorpay recaptcha redis replicate resend rollbar rubygems s3 salesforce sauce scaleway segment "
    "sendgrid sendinblue sentry shodan shopify slack snowflake snyk sonar sonarqube sonatype spotify square stability "
    "strava stripe supabase telegram terraform tmdb together travis trello tumblr twilio twitch twitter typeform "
    "unsplash upstash vercel virustotal vonage voyage wandb weather weatherapi weaviate xai yelp youtube zendesk zoom"
)
_NOT_SERVICES_WITH_KEYS = _words("s3 gcs redis aws postgres mongo mongodb docker github gh google maps")
_PLAIN_WORDS = _words(  # services whose names are common words: `key_linear`, `token_segment`
    "comet fal figma linear maps neptune notion percy quay relic replicate resend segment square stability together "
    "weather zoom"
)
_NO_PASS = _words(
    "first second third one two three single double multi per by low high band forward backward fwd bwd render each "
    "every last next final did does all num n max min early z depth shadow base geometry warmup lexical"
)
_WORDS_BEFORE_PASS = _words("ask by com encom over sur tres under")  # they make another word with `pass`: bypass
# What `pwd` may mean in a name.
_FOLDERS = _words("orig original old last work working start init initial build host current launch script")

# After these words, a `token` is one of a language model. Any other token gives access.
_LANGUAGE = _words(
    "pad padding eos bos unk unknown mask masked sep cls start end stop special image img audio video text word char "
    "character oov sot eot eof first last next previous prev input output per by max min num n subword "
    "placeholder initializer blank null empty delimiter separator newline sentinel extra prompt "
    " language lang speaker timestamp noise dummy split boundary field forced decoder "
    "encoder begin beginning single each continuation dist class label fim prefix suffix middle turn "
    "think sample"
)
_PHASES = _words("train training eval test valid validation warmup")  # likewise, unless a service is named, too
# After these words, the plural `tokens` is secret.
_TOKENS = _words("auth access api bot refresh bearer session secret personal deploy service admin oauth")

# Words for secrets at the end of a name that is written as one word: pgpassword, AUTHTOKEN.
_RUN_TOGETHER = re.compile(
    r"^(.+?)(passwords?|passwd|passphrase|passcode|secrets?|credentials?|creds|apikeys?|tokens?|pwd|webhook|key|pass|pat"
    r"|cookie)$"
)
_OF_KEYS = _phrases("access key id|secret access key|key id")
_WRITTEN_AS_ONE = {"".join(phrase): phrase for phrase in _PHRASES | _OF_KEYS}


@lru_cache(4096)
def is_secret(name: str, content: bool = False) -> bool:
    """Return whether the value of a variable or hyperparameter with this name is secret.

    PASSWORD_FILE, KUBECONFIG and PWD usually hold a path, which is no secret. With `content`, the value is known to be
    no path.
    """
    words = _split(name[-_LONGEST_CHARS:])
    if words[:2] == ["sm", "hp"]:
        del words[:2]
    elif name in ("PWD", "OLDPWD") and not content:  # set by every shell; a hyperparameter would be called pwd
        return False
    if not words or _ABOUT.intersection(words[:-1]) or (words[0] in _ABOUT_AT_FIRST and len(words) > 1):
        return False
    for end in range(len(words), 0, -1):
        if _names_one(words[:end], words[end:], content):
            return True
        word = words[end - 1]
        says_which = word in _WHICH or word.isdigit() or bool(re.fullmatch(r"v\d{1,3}", word))
        if not (says_which or _is_subject(word) or (content and word in _AS_A_FILE)):
            return words[0] == "key" and end == 1 < len(words) and _is_subject(words[1])  # KEY_OPENAI
    return False


def _split(name: str) -> list[str]:
    words: list[str] = []
    for word in _BETWEEN.split(_HUMP.sub("_", name)):
        word = word.lower()
        stem = word.rstrip("0123456789") or word
        word = stem if word not in _FILES and word != stem and (_is_noun(stem) or _run_together(stem)) else word
        words += _run_together(word) or ([word] if word else [])
    return words


def _is_subject(word: str) -> bool:
    return word in _OF_WHAT or word in _SERVICES - _PLAIN_WORDS


def _is_noun(word: str) -> bool:
    return word in _NOUNS or word in ("key", "token", "tokens", "keys", "pass", "pwd", "salt")


def _run_together(word: str) -> list[str]:
    """Return the words of a name that is written as one word; [] if it is not known to have several."""
    if word in _WRITTEN_AS_ONE:
        return list(_WRITTEN_AS_ONE[word])
    found = _RUN_TOGETHER.match(word)
    if not found or _is_noun(word):
        return []
    before, noun = found[1], found[2]
    if noun == "key" and before not in _KEYS | (_SERVICES - _NOT_SERVICES_WITH_KEYS):
        return []
    if noun == "pass" and before in _NO_PASS | _WORDS_BEFORE_PASS:
        return []
    if noun == "pat" and before not in _SERVICES:
        return []
    if noun == "pwd" and before in _FOLDERS:
        return []
    return [before, noun]


def _names_one(words: list[str], rest: list[str], content: bool) -> bool:
    """Return whether the last of `words` names a secret. `rest`: the words after it."""
    noun, before = words[-1], words[-2] if len(words) > 1 else ""
    if noun in _NOUNS or tuple(words[-2:]) in _PHRASES or tuple(words[-3:]) in _PHRASES:
        return True
    if noun in _FILES or tuple(words[-2:]) in (("service", "account"), ("kube", "config")):
        return content or bool(_CONTENTS.intersection(rest))
    match noun:
        case "token":
            is_language = before in _LANGUAGE or (before in _PHASES and not _SERVICES.intersection(words[:-1]))
            return not is_language
        case "tokens":
            return before in _TOKENS | _SERVICES
        case "key" | "keys":
            if before in ("primary", "secondary"):
                return bool(_SERVICES.intersection(words[:-2])) or "access" in words[:-2]
            if before in _KEYS or (not before and _OF_PRIVATE_KEYS.intersection(rest)):
                return True
            return before not in _OF_DATA and bool((_SERVICES - _NOT_SERVICES_WITH_KEYS).intersection(words[:-1]))
        case "id":
            return before == "key" and len(words) > 2 and words[-3] in _ID_OF_KEYS
        case "pass":
            return before not in _NO_PASS
        case "pwd":
            return before not in _FOLDERS
        case "salt":
            return bool(before)
    return False
